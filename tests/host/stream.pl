#!/usr/bin/perl
# SPDX-License-Identifier: GPL-2.0-only
#
# What tests/host/stream.t compares with, and what it damages streams with.
#
#	stream.pl image STORE ORIGIN ID <DUMP >IMAGE
#		the content of a snapshot, from what cowsnap dump says
#	stream.pl compare CHUNK_BYTES A B <EXTENTS
#		"MISSED EXTRA": chunks that differ and are in no extent; that are in one
#		and do not differ
#	stream.pl fresh EPOCH CHUNK_BYTES EXTENTS <DUMP
#		how many chunks in doubt, of that epoch or a later one, are in no extent
#	stream.pl mutate SEED <STREAM >STREAM
#		something else than it was, in one of eight ways
#	stream.pl forge FIELD VALUE <STREAM >STREAM
#		right checksums over a header, or a first record, that cannot be
#	stream.pl alter drop|repeat|swap|shift <STREAM >STREAM
#		a record that is whole, and not in its place
#	stream.pl cuts COUNT <STREAM
#		where to cut it: on the borders of records, and between them

use strict;
use warnings;

sub slurp
{
	my ($path) = @_;
	local $/;

	open(my $in, '<:raw', $path) or die "$path: $!\n";
	return scalar <$in>;
}

sub from_stdin
{
	local $/;

	binmode(STDIN);
	return scalar <STDIN>;
}

# ---- a dump ----

sub read_dump
{
	my %d = (exceptions => [], epoch_of => {}, sectors_of => {});

	while (my $line = <STDIN>) {
		my ($name, @rest) = split ' ', $line;

		if ($name eq 'exception') {
			push @{$d{exceptions}}, {@rest};
		} elsif ($name eq 'snapshot') {
			my %s = @rest;
			$d{epoch_of}{$s{id}} = $s{epoch};
			$d{sectors_of}{$s{id}} = $s{sectors};
		} elsif (@rest == 1) {
			$d{$name} = $rest[0];
		}
	}
	return \%d;
}

# The version that the snapshot of this epoch sees: its own, else the oldest not below it.
sub better
{
	my ($epoch, $new, $old) = @_;
	my $own = $new->{kind} =~ /^private/;

	return 0 if $own ? $new->{epoch} != $epoch : $new->{epoch} < $epoch;
	return 1 if !$old;
	return 0 if $old->{kind} =~ /^private/;
	return $own || $new->{epoch} < $old->{epoch};
}

sub image
{
	my ($store_path, $origin_path, $id) = @_;
	my $d = read_dump();
	my ($store, $image) = (slurp($store_path), slurp($origin_path));
	my $bytes = $d->{chunk_sectors} * 512;
	my %seen;

	for my $e (@{$d->{exceptions}}) {
		for my $i (0 .. $e->{count} - 1) {
			my $one = {%$e, place => $e->{place} + $i};
			my $chunk = $e->{chunk} + $i;

			$seen{$chunk} = $one if better($d->{epoch_of}{$id}, $one, $seen{$chunk});
		}
	}
	for my $chunk (keys %seen) {
		my $data = $seen{$chunk}{kind} =~ /zero/ ? "\0" x $bytes :
			   substr($store, $seen{$chunk}{place} * $bytes, $bytes);
		substr($image, $chunk * $bytes, $bytes) = $data;
	}
	binmode(STDOUT);
	print substr($image, 0, $d->{sectors_of}{$id} * 512);
}

# ---- extents ----

sub covered_chunks
{
	my ($in, $bytes) = @_;
	my %covered;

	while (my $line = <$in>) {
		my ($offset, $length) = split ' ', $line;

		die "not a chunk: $line" if $offset % $bytes;
		$covered{$_} = 1 for $offset / $bytes .. ($offset + $length - 1) / $bytes;
	}
	return \%covered;
}

sub compare
{
	my ($bytes, @paths) = @_;
	my ($x, $y) = map { slurp($_) } @paths;
	my $covered = covered_chunks(\*STDIN, $bytes);
	my ($missed, $extra) = (0, 0);

	for (my $chunk = 0; $chunk * $bytes < length($y); $chunk++) {
		my $differs = $chunk * $bytes >= length($x) ||
			substr($x, $chunk * $bytes, $bytes) ne substr($y, $chunk * $bytes, $bytes);

		$missed++ if $differs && !$covered->{$chunk};
		$extra++ if !$differs && $covered->{$chunk};
	}
	print "$missed $extra\n";
}

sub fresh
{
	my ($epoch, $bytes, $extents) = @_;
	my $d = read_dump();
	my $missed = 0;

	open(my $in, '<', $extents) or die "$extents: $!\n";
	my $covered = covered_chunks($in, $bytes);

	for my $e (@{$d->{exceptions}}) {
		next if !$e->{fresh} || $e->{epoch} < $epoch || $e->{kind} =~ /^private/;
		$missed += !$covered->{$e->{chunk} + $_} for 0 .. $e->{count} - 1;
	}
	print "$missed\n";
}

# ---- streams ----

sub mutate
{
	my ($seed) = @_;
	my $s = from_stdin();

	srand($seed);
	# Half of them near the start: headers and first records are short.
	my $at = int(rand(rand() < .5 ? 200 : length($s)));
	my $n = 1 + int(rand(rand() < .5 ? 8 : 5000));

	$n = length($s) - $at if $n > length($s) - $at;
	my @ways = (
		sub { vec($s, $at * 8 + int(rand(8)), 1) ^= 1 },
		sub { substr($s, $at, $n) = join '', map { chr int rand 256 } 1 .. $n },
		sub { substr($s, $at, $n) = "\0" x $n },
		sub { substr($s, $at) = '' },
		sub { substr($s, $at, $n) = '' },
		sub { substr($s, $at, 0) = substr($s, $at, $n) },
		sub { substr($s, $at, 0) = join '', map { chr int rand 256 } 1 .. $n },
		sub { my $to = int(rand(length($s) - $n));
		      my $part = substr($s, $at, $n, ''); substr($s, $to, 0) = $part },
	);
	$ways[$seed % @ways]->();
	binmode(STDOUT);
	print $s;
}

my @table = map { my $c = $_; $c = $c & 1 ? $c >> 1 ^ 0x82f63b78 : $c >> 1 for 1 .. 8; $c } 0 .. 255;

sub crc32c
{
	my ($crc, $data) = @_;

	$crc = $crc >> 8 ^ $table[($crc ^ $_) & 255] for unpack 'C*', $data;
	return $crc;
}

# Where each field stands, and how it is packed; those of the first record come after the header.
my %field = (
	magic => [0, 'a16'], version => [20, 'V'], header_bytes => [24, 'V'], flags => [28, 'V'],
	from_epoch => [48, 'Q<'], to_epoch => [56, 'Q<'], from_bytes => [64, 'Q<'],
	to_bytes => [72, 'Q<'], position => [80, 'Q<'],
	type => [132, 'V'], offset => [136, 'Q<'], length => [144, 'Q<'], stored => [152, 'V'],
);

sub forge
{
	my ($name, $value) = @_;
	my ($at, $as) = @{$field{$name} or die "no field $name\n"};
	my $s = from_stdin();
	my $new = pack($as, $as eq 'a16' ? $value : $value + 0);

	substr($s, $at, length($new)) = $new;
	my $crc = crc32c(0xffffffff, substr($s, 20, 108));
	substr($s, 16, 4) = pack('V', $crc);
	substr($s, 128, 4) = pack('V', crc32c($crc, substr($s, 132, 28)));
	binmode(STDOUT);
	print $s;
}

# Where its records begin.
sub borders
{
	my ($s) = @_;
	my @borders;

	for (my $at = 128; $at < length($s); ) {
		push @borders, $at;
		$at += 32 + unpack('V', substr($s, $at + 24, 4));
	}
	return @borders;
}

# The offset of a record, and its end.
sub range
{
	my ($s, $at) = @_;
	my ($offset, $length) = unpack('Q<Q<', substr($s, $at + 8, 16));

	return ($offset, $offset + $length);
}

# Three records from the middle on; the third begins at $c.
sub alter
{
	my ($way) = @_;
	my $s = from_stdin();
	my @borders = borders($s);
	my ($a, $b, $c) = @borders[@borders / 2 .. @borders / 2 + 2];

	if ($way eq 'drop') {
		substr($s, $a, $b - $a) = '';
	} elsif ($way eq 'repeat') {
		substr($s, $a, 0) = substr($s, $a, $b - $a);
	} elsif ($way eq 'swap') {
		substr($s, $a, $c - $a) = substr($s, $b, $c - $b) . substr($s, $a, $b - $a);
	} elsif ($way eq 'shift') {
		# To a place where no other record is.
		for my $i (0 .. $#borders - 1) {
			my ($offset, $end) = range($s, $borders[$i]);

			next if (range($s, $borders[$i + 1]))[0] < $end + 8192;
			substr($s, $borders[$i] + 8, 8) = pack('Q<', $offset + 8192);
			last;
		}
	}
	binmode(STDOUT);
	print $s;
}

sub cuts
{
	my ($count) = @_;
	my $s = from_stdin();
	my @borders = borders($s);

	for my $i (0 .. $count - 1) {
		my $border = $borders[$i * @borders / $count];
		my @places = ($border, $border + 16, $border + 33);

		print $places[$i % 3], "\n" if $places[$i % 3] < length($s);
	}
}

my %commands = (image => \&image, compare => \&compare, fresh => \&fresh, mutate => \&mutate,
		forge => \&forge, alter => \&alter, cuts => \&cuts);
my $command = shift // '';

($commands{$command} or die "no command \"$command\"\n")->(@ARGV);
