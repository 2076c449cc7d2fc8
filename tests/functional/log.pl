#!/usr/bin/perl
# SPDX-License-Identifier: GPL-2.0-only
#
# What tests ask of the log of a store, given as a file (include/uapi/dm-cowsnap-format.h):
#
#   log.pl zones FILE                    for each zone in use: "A START CHUNKS SERIES DURABLE"
#   log.pl records FILE                  for each record, in order: "ZONE CHUNK INDEX SLOTS DURABLE",
#                                        by its mark and its crc
#   log.pl old FILE                      how many blocks in zones are records of earlier ones, where
#                                        none of now, nor data of one, stands
#   log.pl sector FILE CHUNK             the sector that the record in that chunk begins with
#   log.pl seal-supers FILE OFFSET HEX   these bytes in both superblocks, with right checksums
use strict;
use warnings;
use FindBin;

require "$FindBin::Bin/files.pl";

use constant {
	SECTOR => 512,
	SUPER_CRC => 16,
	SUPER_UUID => 48,
	SUPER_BLOCK_BYTES => 72,
	SUPER_CHUNK_SECTORS => 76,
	SUPER_SEQUENCE => 64,
	SUPER_ZONES => 184,
	ZONE_BYTES => 24,
	RECORD_BYTES => 32,
};

my @crc_table = map {
	my $crc = $_;

	$crc = $crc >> 1 ^ ($crc & 1 ? 0x82f63b78 : 0) for 1 .. 8;
	$crc;
} 0 .. 255;

# crc32c, as it is without the last inversion.
sub crc
{
	my ($crc, $data) = @_;

	$crc = $crc_table[($crc ^ $_) & 0xff] ^ $crc >> 8 for unpack("C*", $data);
	return $crc;
}

sub seed
{
	my ($all, $sector) = @_;

	return crc(0xffffffff, substr($all, SUPER_UUID, 16) . pack("Q<", $sector));
}

# The superblock that counts.
sub super
{
	my ($all) = @_;
	my $a = substr($all, 0, SECTOR);
	my $b = substr($all, unpack("V", substr($a, SUPER_BLOCK_BYTES, 4)), SECTOR);

	return unpack("Q<", substr($b, SUPER_SEQUENCE, 8)) >
	       unpack("Q<", substr($a, SUPER_SEQUENCE, 8)) ? $b : $a;
}

sub zones
{
	my ($all) = @_;
	my $super = super($all);
	my @zones;

	for my $i (0, 1) {
		my ($start, $series, $chunks, $durable) =
			unpack("Q<Q<VV", substr($super, SUPER_ZONES + $i * ZONE_BYTES, ZONE_BYTES));

		push @zones, { name => chr(ord("A") + $i), start => $start, series => $series,
			       chunks => $chunks, durable => $durable } if $chunks;
	}
	return @zones;
}

sub record_sector
{
	my ($all, $chunk) = @_;
	my ($block, $chunk_sectors) = unpack("VV", substr($all, SUPER_BLOCK_BYTES, 8));

	return ($chunk + 1) * $chunk_sectors - $block / SECTOR;
}

sub mark
{
	my ($all, $sector, $series) = @_;
	my $low = crc(seed($all, $sector), pack("Q<", $series));

	return $low | crc(~$low & 0xffffffff, pack("Q<", $series)) << 32;
}

# Calls $found for each record, and $other for what else may have been one: where, and its fields.
sub walk
{
	my ($all, $zone, $found, $other) = @_;
	my $bytes = unpack("V", substr($all, SUPER_BLOCK_BYTES, 4));

	for (my $at = $zone->{start}; $at + 1 < $zone->{start} + $zone->{chunks}; $at++) {
		my $sector = record_sector($all, $at);
		my $block = substr($all, $sector * SECTOR, $bytes);
		my ($crc, $index, $series, $mark, $durable, $nr) =
			unpack("VVQ<Q<Vv", substr($block, 0, RECORD_BYTES));

		next if $mark != mark($all, $sector, $series) ||
			$crc != crc(seed($all, $sector), substr($block, 4));
		if ($series == $zone->{series}) {
			$found->($at, $index, $nr, $durable);
			$at += $nr;
		} else {
			$other->();
		}
	}
}

sub records_of
{
	my ($all, $zone) = @_;

	walk($all, $zone, sub { print "$zone->{name} @_\n" }, sub {});
}

# In front of the last record: what stands behind it may only not have been written yet.
sub old_records_of
{
	my ($all, $zone) = @_;
	my ($old, $now) = (0, 0);

	walk($all, $zone, sub { $old = $now }, sub { $now++ });
	return $old;
}

sub seal_supers
{
	my ($path, $offset, $hex) = @_;
	my $all = read_file($path);
	my $second = unpack("V", substr($all, SUPER_BLOCK_BYTES, 4));

	for my $at (0, $second) {
		my $super = substr($all, $at, SECTOR);

		substr($super, $offset, length($hex) / 2) = pack("H*", $hex);
		substr($super, SUPER_CRC, 4) = "\0" x 4;
		substr($super, SUPER_CRC, 4) = pack("V", crc(seed($all, $at / SECTOR), $super));
		substr($all, $at, SECTOR) = $super;
	}
	write_file($path, $all);
}

my ($what, $path, @rest) = @ARGV;

if ($what eq "zones") {
	print join(" ", @$_{qw(name start chunks series durable)}), "\n"
		for zones(read_file($path));
} elsif ($what eq "records") {
	my $all = read_file($path);

	records_of($all, $_) for zones($all);
} elsif ($what eq "old") {
	my ($all, $old) = (read_file($path), 0);

	$old += old_records_of($all, $_) for zones($all);
	print "$old\n";
} elsif ($what eq "sector") {
	print record_sector(read_file($path), @rest), "\n";
} elsif ($what eq "seal-supers") {
	seal_supers($path, @rest);
} else {
	die "log.pl: $what?\n";
}
