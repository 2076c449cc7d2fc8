#!/usr/bin/perl
# SPDX-License-Identifier: GPL-2.0-only
#
# What tests do to chunks and stores, given as files or devices:
#
#   store.pl mark FILE VERSION FROM TO       chunks FROM to TO, full of words that say which
#                                            they are, and of which version
#   store.pl find FILE CHUNK VERSION         the byte at which such a chunk is kept
#   store.pl differences DEV IMAGE CHUNKS    "eio FROM-TO" and "wrong FROM-TO" for the chunks
#                                            that cannot be read, or are not as in IMAGE
#   store.pl flip FILE BIT...                bits, counted from the start of the file
#   store.pl spoil FILE OFFSET BYTES         other bytes than there were
#   store.pl spoil-block FILE KIND           three bits of the block with the first slot of that
#                                            kind (5: records)
#   store.pl set-epoch FILE CHUNK EPOCH      the slot of the copied CHUNK says another epoch,
#                                            with the right checksum
#   store.pl set-chunk FILE KIND CHUNK OTHER the slot of that kind of CHUNK says OTHER, with the
#                                            right checksum (7: current)
#   store.pl in-doubt FILE PLACE             is the slot of that place in a block of a commit
#                                            that no block and no superblock names durable?
#   store.pl renumber FILE BLOCK             as if a commit after the last one had written the
#                                            block, when only the superblock's was durable
#   store.pl find-place FILE KIND            the first place whose slot is of that kind
#                                            (5: records, 6: blocks of a tracker)
#   store.pl count FILE KIND                 how many slots are of that kind
#   store.pl kind FILE PLACE                 of which kind the slot of that place is (0: free)
#
# A store has chunks of 4096 bytes and blocks of 512 (include/uapi/dm-cowsnap-format.h); what
# is said here of slots is true of its first segment.
use strict;
use warnings;
use FindBin;
use IO::Handle;

require "$FindBin::Bin/files.pl";

use constant {
	CHUNK_BYTES => 4096,
	BLOCK_BYTES => 512,
	FIRST_BLOCK => 2,		# behind the superblocks
	SEGMENT_BLOCKS => 8,		# superblocks included
	SLOTS => 34,			# in a block
	SEARCHED_BYTES => 1 << 20,	# for slots, from the start
	HEADER_BYTES => 24,
	SLOT_BYTES => 14,
	KIND_COPIED => 1,
	# offsets in a superblock, a block's header, a slot
	SUPER_UUID => 48,
	SUPER_DURABLE => 104,
	BLOCK_SEQUENCE => 8,
	BLOCK_DURABLE => 16,
	SLOT_CHUNK => 4,
	SLOT_EPOCH => 8,
};

sub bytes_at
{
	my ($path, $at, $bytes) = @_;

	open(my $f, "<", $path) or die "$path: $!";
	sysseek($f, $at, 0);
	sysread($f, my $data, $bytes) == $bytes or die "$path: no $bytes bytes at $at";
	return $data;
}

sub put_bytes
{
	my ($path, $at, $data) = @_;

	open(my $f, "+<", $path) or die "$path: $!";
	write_at($f, $at, $data);
	$f->sync or die "$path: $!";
}

sub number_at
{
	my ($all, $at) = @_;

	return unpack("Q<", substr($all, $at, 8));
}

# ---- chunks that say what they are ----

sub mark_of
{
	my ($chunk, $version) = @_;

	return sprintf("chunk %4d v%d,  ", $chunk, $version);
}

sub mark
{
	my ($path, $version, $from, $to) = @_;

	open(my $f, "+<", $path) or die "$path: $!";
	for my $chunk ($from .. $to) {
		my $data = mark_of($chunk, $version);
		write_at($f, $chunk * CHUNK_BYTES, $data x (CHUNK_BYTES / length $data));
	}
	$f->sync or die "$path: $!";
}

sub find
{
	my ($path, $chunk, $version) = @_;
	my $mark = mark_of($chunk, $version);

	$mark =~ s/ +$//;
	print index(read_file($path), $mark);
}

# What is wrong with a chunk of $dev: "eio", "wrong", or nothing.
sub verdict
{
	my ($dev, $image, $chunk) = @_;

	sysseek($dev, $chunk * CHUNK_BYTES, 0);
	sysseek($image, $chunk * CHUNK_BYTES, 0);
	sysread($image, my $want, CHUNK_BYTES);
	return "eio" unless defined sysread($dev, my $have, CHUNK_BYTES);
	return $have eq $want ? "" : "wrong";
}

sub differences
{
	my ($dev_path, $image_path, $chunks) = @_;
	my ($last, $from) = ("", 0);

	open(my $dev, "<", $dev_path) or die "$dev_path: $!";
	open(my $image, "<", $image_path) or die "$image_path: $!";
	for my $chunk (0 .. $chunks) {
		my $verdict = $chunk < $chunks ? verdict($dev, $image, $chunk) : "";
		next if $verdict eq $last;
		print "$last $from-", $chunk - 1, " " if $last;
		($last, $from) = ($verdict, $chunk);
	}
}

# ---- damage ----

sub flip
{
	my ($path, @bits) = @_;

	for my $bit (@bits) {
		my $byte = ord(bytes_at($path, $bit >> 3, 1));
		put_bytes($path, $bit >> 3, chr($byte ^ 1 << ($bit & 7)));
	}
}

sub spoil
{
	my ($path, $at, $bytes) = @_;

	put_bytes($path, $at, bytes_at($path, $at, $bytes) ^ ("\xa5" x $bytes));
}

# ---- slots and blocks ----

# crc32c, as it is without the last inversion.
sub crc
{
	my ($crc, $data) = @_;

	for my $byte (unpack("C*", $data)) {
		$crc ^= $byte;
		$crc = $crc >> 1 ^ ($crc & 1 ? 0x82f63b78 : 0) for 1 .. 8;
	}
	return $crc;
}

# A block of slots gets its checksum, and goes to its place.
sub write_block
{
	my ($path, $all, $block, $data) = @_;
	my $seed = crc(0xffffffff, substr($all, SUPER_UUID, 16) . pack("Q<", $block));

	substr($data, 0, 4) = pack("L<", crc($seed, substr($data, 4)));
	put_bytes($path, $block * BLOCK_BYTES, $data);
}

sub slot_offset
{
	my ($slot) = @_;

	return HEADER_BYTES + $slot * SLOT_BYTES;
}

# A slot's chunk (32 bits are enough here), and its kind.
sub slot
{
	my ($data, $slot) = @_;
	my (undef, $chunk, undef, $kind) = unpack("VVVC", substr($data, slot_offset($slot), SLOT_BYTES));

	return ($chunk, $kind >> 4 & 7);
}

# The first block with a slot of which $is_it->(chunk, kind) is true, and which slot.
sub find_slot
{
	my ($all, $is_it) = @_;

	for my $block (FIRST_BLOCK .. length($all) / BLOCK_BYTES - 1) {
		my $data = substr($all, $block * BLOCK_BYTES, BLOCK_BYTES);
		for my $nr (0 .. SLOTS - 1) {
			return ($block, $nr) if $is_it->(slot($data, $nr));
		}
	}
	die "no such slot";
}

sub spoil_block
{
	my ($path, $kind) = @_;
	my $all = bytes_at($path, 0, SEARCHED_BYTES);
	my ($block) = find_slot($all, sub { $_[1] == $kind });

	flip($path, map { ($block * BLOCK_BYTES + $_) * 8 + 4 } 100, 200, 300);
}

sub set_epoch
{
	my ($path, $chunk, $epoch) = @_;
	my $all = bytes_at($path, 0, SEARCHED_BYTES);
	my ($block, $nr) = find_slot($all, sub { $_[0] == $chunk && $_[1] == KIND_COPIED });
	my $data = substr($all, $block * BLOCK_BYTES, BLOCK_BYTES);

	substr($data, slot_offset($nr) + SLOT_EPOCH, 4) = pack("V", $epoch);
	write_block($path, $all, $block, $data);
}

sub set_chunk
{
	my ($path, $kind, $chunk, $other) = @_;
	my $all = bytes_at($path, 0, SEARCHED_BYTES);
	my ($block, $nr) = find_slot($all, sub { $_[0] == $chunk && $_[1] == $kind });
	my $data = substr($all, $block * BLOCK_BYTES, BLOCK_BYTES);

	substr($data, slot_offset($nr) + SLOT_CHUNK, 4) = pack("V", $other);
	write_block($path, $all, $block, $data);
}

# The block and the slot in it that a place, a chunk of the store, has.
sub block_and_slot
{
	my ($place) = @_;

	return (FIRST_BLOCK + int(($place - 1) / SLOTS), ($place - 1) % SLOTS);
}

sub in_doubt
{
	my ($path, $place) = @_;
	my $all = read_file($path);
	my $durable = number_at($all, SUPER_DURABLE);
	my ($block) = block_and_slot($place);

	for my $other (FIRST_BLOCK .. SEGMENT_BLOCKS - 1) {
		my $named = number_at($all, $other * BLOCK_BYTES + BLOCK_DURABLE);
		$durable = $named if $named > $durable;
	}
	exit !(number_at($all, $block * BLOCK_BYTES + BLOCK_SEQUENCE) > $durable);
}

sub renumber
{
	my ($path, $block) = @_;
	my $all = read_file($path);
	my $data = substr($all, $block * BLOCK_BYTES, BLOCK_BYTES);
	my $last = 0;

	for my $other (FIRST_BLOCK .. SEGMENT_BLOCKS - 1) {
		my $number = number_at($all, $other * BLOCK_BYTES + BLOCK_SEQUENCE);
		$last = $number if $number > $last;
	}
	substr($data, BLOCK_SEQUENCE, 8) = pack("Q<", $last + 1);
	substr($data, BLOCK_DURABLE, 8) = substr($all, SUPER_DURABLE, 8);
	write_block($path, $all, $block, $data);
}

sub find_place
{
	my ($path, $wanted) = @_;
	my $all = read_file($path);

	for my $place (1 .. (SEGMENT_BLOCKS - FIRST_BLOCK) * SLOTS) {
		my ($block, $nr) = block_and_slot($place);
		my (undef, $kind) = slot(substr($all, $block * BLOCK_BYTES, BLOCK_BYTES), $nr);
		next unless $kind == $wanted;
		print $place;
		return;
	}
}

sub count
{
	my ($path, $wanted) = @_;
	my $all = read_file($path);
	my $count = 0;

	for my $place (1 .. (SEGMENT_BLOCKS - FIRST_BLOCK) * SLOTS) {
		my ($block, $nr) = block_and_slot($place);
		my (undef, $kind) = slot(substr($all, $block * BLOCK_BYTES, BLOCK_BYTES), $nr);
		$count++ if $kind == $wanted;
	}
	print $count;
}

sub kind
{
	my ($path, $place) = @_;
	my ($block, $nr) = block_and_slot($place);
	my (undef, $kind) = slot(bytes_at($path, $block * BLOCK_BYTES, BLOCK_BYTES), $nr);

	print $kind;
}

my %commands = (
	"mark" => \&mark,
	"find" => \&find,
	"differences" => \&differences,
	"flip" => \&flip,
	"spoil" => \&spoil,
	"spoil-block" => \&spoil_block,
	"set-epoch" => \&set_epoch,
	"set-chunk" => \&set_chunk,
	"in-doubt" => \&in_doubt,
	"renumber" => \&renumber,
	"find-place" => \&find_place,
	"count" => \&count,
	"kind" => \&kind,
);
my $command = shift // "";
($commands{$command} or die "no command '$command'")->(@ARGV);
