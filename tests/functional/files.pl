# SPDX-License-Identifier: GPL-2.0-only
#
# Reading and writing files and devices, for store.pl and origin.pl.
use strict;
use warnings;

sub read_file
{
	my ($path) = @_;

	open(my $f, "<", $path) or die "$path: $!";
	local $/;
	return <$f>;
}

sub write_file
{
	my ($path, $data) = @_;

	open(my $f, ">", $path) or die "$path: $!";
	print $f $data;
}

# write_at HANDLE OFFSET DATA
sub write_at
{
	my ($f, $at, $data) = @_;

	sysseek($f, $at, 0);
	syswrite($f, $data) == length $data or die "write at $at: $!";
}

1;
