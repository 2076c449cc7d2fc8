// SPDX-License-Identifier: GPL-2.0-only
/* A store as bytes in memory. */
#include <endian.h>
#include <string.h>

#include "../../tools/crc32c.h"
#include "image.h"

#define SECTOR 512

u64 rng_next(struct rng *r)
{
	u64 z = r->state += 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

u64 rng_below(struct rng *r, u64 limit)
{
	return limit ? rng_next(r) % limit : 0;
}

static u32 super_crc(const u8 *at, size_t offset)
{
	struct cowsnap_super super;

	memcpy(&super, at, sizeof(super));
	return cowsnap_super_crc(&super, offset / SECTOR);
}

static bool super_whole(const u8 *data, size_t bytes, size_t offset)
{
	struct cowsnap_super super;

	if (offset + sizeof(super) > bytes)
		return false;
	memcpy(&super, data + offset, sizeof(super));
	return !memcmp(super.magic, COWSNAP_MAGIC, COWSNAP_MAGIC_BYTES) &&
	       le32toh(super.crc) == super_crc(data + offset, offset);
}

static bool open_at(struct image *im, size_t offset)
{
	struct cowsnap_super super;
	u64 sectors = im->bytes / SECTOR;

	if (!super_whole(im->data, im->bytes, offset))
		return false;
	memcpy(&super, im->data + offset, sizeof(super));
	if (cowsnap_geometry_init(&im->geo, le32toh(super.block_bytes),
				  le32toh(super.chunk_sectors)))
		return false;
	memcpy(im->uuid, super.uuid, sizeof(im->uuid));
	im->blocks = le32toh(super.blocks);
	while (im->blocks && image_block_offset(im, im->blocks - 1) +
	       im->geo.block_bytes > sectors * SECTOR)
		im->blocks = im->blocks > 4096 ? 4096 : im->blocks - 1;
	return im->blocks >= 2;
}

bool image_open(struct image *im, u8 *data, size_t bytes)
{
	size_t offset;

	im->data = data;
	im->bytes = bytes;
	if (open_at(im, 0))
		return true;
	for (offset = SECTOR; offset <= 4096; offset *= 2)
		if (open_at(im, offset))
			return true;
	return false;
}

u64 image_chunks(const struct image *im)
{
	return im->bytes / SECTOR >> im->geo.chunk_shift;
}

static void find_block(const struct image *im, u64 nr, struct cowsnap_segment *seg)
{
	u64 index = 0;

	do {
		cowsnap_get_segment(&im->geo, index++, seg);
	} while (seg->first_block + seg->blocks <= nr);
}

size_t image_block_offset(const struct image *im, u64 nr)
{
	struct cowsnap_segment seg;

	find_block(im, nr, &seg);
	return cowsnap_block_sector(&im->geo, &seg, nr - seg.first_block) * SECTOR;
}

struct cowsnap_block_header *image_block_header(struct image *im, u64 nr)
{
	size_t offset = image_block_offset(im, nr);

	if (!cowsnap_block_slots(&im->geo, nr) || offset + im->geo.block_bytes > im->bytes)
		return NULL;
	return (struct cowsnap_block_header *)(im->data + offset + cowsnap_area_offset(nr));
}

bool image_is_data(const struct image *im, u64 place)
{
	struct cowsnap_segment seg;

	cowsnap_get_segment(&im->geo, cowsnap_find_segment(&im->geo, place), &seg);
	return place >= seg.data && place < image_chunks(im);
}

struct cowsnap_slot *image_slot(struct image *im, u64 place, u64 *nr)
{
	struct cowsnap_block_header *header;
	struct cowsnap_segment seg;
	u32 block, index;

	cowsnap_get_segment(&im->geo, cowsnap_find_segment(&im->geo, place), &seg);
	if (place < seg.data)
		return NULL;
	cowsnap_find_slot(&im->geo, &seg, place - seg.data, &block, &index);
	*nr = seg.first_block + block;
	header = image_block_header(im, *nr);
	return header ? (struct cowsnap_slot *)(header + 1) + index : NULL;
}

struct cowsnap_super *image_super(struct image *im, int copy)
{
	return (struct cowsnap_super *)(im->data + (copy ? im->geo.block_bytes : 0));
}

void image_seal_super(struct image *im, int copy)
{
	size_t offset = copy ? im->geo.block_bytes : 0;

	image_super(im, copy)->crc = htole32(super_crc(im->data + offset, offset));
}

static u32 area_crc(const struct image *im, size_t offset, size_t area)
{
	return crc32c(cowsnap_seed(im->uuid, offset / SECTOR), im->data + offset + area + 4,
		      im->geo.block_bytes - area - 4);
}

void image_seal_block(struct image *im, u64 nr)
{
	struct cowsnap_block_header *header = image_block_header(im, nr);

	if (header)
		header->crc = htole32(area_crc(im, image_block_offset(im, nr),
					       cowsnap_area_offset(nr)));
}

void image_seal_records(struct image *im, size_t offset)
{
	struct cowsnap_block_header *header = (void *)(im->data + offset);

	header->crc = htole32(area_crc(im, offset, 0));
}

void image_seal_log_record(struct image *im, u64 chunk)
{
	u64 sector = cowsnap_log_sector(&im->geo, chunk);
	struct cowsnap_log_record *record = (void *)(im->data + sector * SECTOR);

	record->crc = htole32(cowsnap_log_crc(im->uuid, sector, record, im->geo.block_bytes));
}

u32 image_data_crc(const struct image *im, u64 place)
{
	u64 sector = place << im->geo.chunk_shift;

	return crc32c(cowsnap_seed(im->uuid, sector), im->data + sector * SECTOR,
		      im->geo.chunk_sectors * SECTOR);
}
