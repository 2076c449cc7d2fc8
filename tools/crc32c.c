// SPDX-License-Identifier: GPL-2.0-only
/* crc32c, eight bytes at a time by tables made when first needed. */
#include <endian.h>
#include <string.h>

#include "crc32c.h"

#define POLYNOMIAL 0x82f63b78U	/* bits reversed */

/* table[n][b]: what byte b contributes when n zero bytes follow it. */
static uint32_t table[8][256];

static void __attribute__((constructor)) make_table(void)
{
	uint32_t crc;
	int i, n;

	for (i = 0; i < 256; i++) {
		crc = i;
		for (n = 0; n < 8; n++)
			crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
		table[0][i] = crc;
	}
	for (n = 1; n < 8; n++)
		for (i = 0; i < 256; i++)
			table[n][i] = table[n - 1][i] >> 8 ^
				      table[0][table[n - 1][i] & 0xff];
}

static uint32_t eight_bytes(uint32_t crc, const uint8_t *p)
{
	uint32_t low, high;

	memcpy(&low, p, 4);
	memcpy(&high, p + 4, 4);
	low = le32toh(low) ^ crc;
	high = le32toh(high);
	return table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^
	       table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^
	       table[3][high & 0xff] ^ table[2][high >> 8 & 0xff] ^
	       table[1][high >> 16 & 0xff] ^ table[0][high >> 24];
}

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	const uint8_t *p = data;

	for (; len >= 8; len -= 8, p += 8)
		crc = eight_bytes(crc, p);
	for (; len; len--, p++)
		crc = crc >> 8 ^ table[0][(crc ^ *p) & 0xff];
	return crc;
}

/* The crc of what differs in one bit differs by a value that says which one. */
bool crc32c_mend(uint8_t *data, size_t len, uint32_t difference)
{
	const uint8_t zero = 0;
	uint32_t value[8];
	int bit;

	if (difference && !(difference & (difference - 1)))
		return true;
	for (bit = 0; bit < 8; bit++)
		value[bit] = crc32c(0, &(const uint8_t){ 1U << bit }, 1);
	while (len--) {
		for (bit = 0; bit < 8; bit++) {
			if (value[bit] == difference) {
				data[len] ^= 1U << bit;
				return true;
			}
			value[bit] = crc32c(value[bit], &zero, 1);
		}
	}
	return false;
}
