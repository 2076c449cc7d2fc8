#!/usr/bin/perl
# SPDX-License-Identifier: GPL-2.0-only
#
# What one process does to the origin /dev/mapper/o, with no time lost in starting others:
#
#   origin.pl snapshots IMAGE ID...      before each snapshot three writes anywhere; prints the
#                                        checksum of what each has; IMAGE is kept up with
#   origin.pl rotate DIR FROM TO         each snapshot is made, its image kept in DIR/of0 to
#                                        DIR/of2, two chunks written, the third oldest deleted
#   origin.pl delete-and-write ID        a snapshot is deleted, 8 MiB written at once
#   origin.pl delete-all-and-write LAST  snapshots 1 to LAST are deleted in a row, and at once
#                                        another process, there already, writes
#   origin.pl count-up DEV DEV           numbers are written to both, one after the other
use strict;
use warnings;
use Digest::MD5 "md5_hex";
use Fcntl;
use FindBin;
use IO::Handle;

require "$FindBin::Bin/files.pl";

use constant {
	SECTOR => 512,
	CHUNK => 4096,
	MIB => 1 << 20,
	# struct dm_ioctl, and its command DM_TARGET_MSG
	DM_TARGET_MSG => 0xc138fd0e,
	DM_HEAD_BYTES => 312,
	DM_BYTES => 16384,
};

sub open_origin
{
	open(my $origin, "+<", "/dev/mapper/o") or die "o: $!";
	return $origin;
}

sub sync_to_disk
{
	my ($f) = @_;

	$f->sync or die "fsync: $!";
}

my $control;

# A message to the origin, as dmsetup sends it.
sub message
{
	my ($text) = @_;
	my $request = pack("L3 L2 L l L L L Q a128 a129 a7 Q a*", 4, 0, 0, DM_BYTES, DM_HEAD_BYTES,
			   0, 0, 0, 0, 0, 0, "o", "", "", 0, "$text\0");

	$control || open($control, "+<", "/dev/mapper/control") || die "control: $!";
	$request .= "\0" x (DM_BYTES - length $request);
	ioctl($control, DM_TARGET_MSG, $request) or die "$text: $!";
}

# 512 bytes to 12 KiB of one letter.
sub write_anywhere
{
	my ($origin, $now) = @_;
	my $data = chr(33 + rand(90)) x (SECTOR * int(1 + rand(24)));
	my $at = SECTOR * int(rand(1000));

	$data = substr($data, 0, length($$now) - $at);
	write_at($origin, $at, $data);
	substr($$now, $at, length $data) = $data;
}

sub snapshots
{
	my ($image, @ids) = @_;
	my $origin = open_origin();
	my $now = read_file($image);

	for my $id (@ids) {
		write_anywhere($origin, \$now) for 1 .. 3;
		sync_to_disk($origin);
		print md5_hex($now), "\n";
		message("create $id");
	}
	write_file($image, $now);
}

sub rotate
{
	my ($dir, $from, $to) = @_;
	my $origin = open_origin();
	my $now = read_file("$dir/now");

	for my $id ($from .. $to) {
		my ($at, $data) = ($id * 37 % 512 * CHUNK, chr($id % 256) x (2 * CHUNK));

		message("create $id");
		write_file("$dir/of" . $id % 3, $now);
		write_at($origin, $at, $data);
		sync_to_disk($origin);
		substr($now, $at, length $data) = $data;
		message("delete " . ($id - 3)) if $id > 3;
	}
	write_file("$dir/now", $now);
}

sub delete_and_write
{
	my ($id) = @_;
	my $origin = open_origin();

	message("delete $id");
	write_at($origin, $_ * 16 * MIB, "\0" x MIB) for 0 .. 7;
	sync_to_disk($origin);
}

sub delete_all_and_write
{
	my ($last) = @_;

	pipe(my $wait, my $go);
	my $writer = fork;
	if (!$writer) {
		sysopen(my $origin, "/dev/mapper/o", O_RDWR | O_SYNC) or die "o: $!";
		sysread($wait, my $x, 1);
		write_at($origin, 0, "\0" x 65536);
		exit 0;
	}
	select(undef, undef, undef, 0.3);
	message("delete $_") for 1 .. $last;
	syswrite($go, "x");
	wait;
	exit($? ? 1 : 0);
}

sub count_up
{
	my @devs = map { open(my $f, "+<", $_) or die "$_: $!"; $f } @_;

	for my $n (1 .. 100000) {
		for my $dev (@devs) {
			write_at($dev, 0, sprintf("%-512d", $n));
			$dev->sync;
		}
	}
}

my %commands = (
	"snapshots" => \&snapshots,
	"rotate" => \&rotate,
	"delete-and-write" => \&delete_and_write,
	"delete-all-and-write" => \&delete_all_and_write,
	"count-up" => \&count_up,
);
my $command = shift // "";
($commands{$command} or die "no command '$command'")->(@ARGV);
