#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
#
# The Markdown files hold together: links lead somewhere, pictures are shown, prose fits in
# 100 columns, and CONTRIBUTING.md lists the folders that there are. No module is needed.

set -uo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
count=0

# none DESC COMMAND...: passes if COMMAND succeeds and prints nothing.
none()
{
	local desc=$1 said rc=0

	shift
	said=$("$@" 2>&1) || rc=$?
	count=$((count + 1))
	if ((rc == 0)) && [[ -z $said ]]; then
		printf 'ok %d - %s\n' "$count" "$desc"
	else
		printf 'not ok %d - %s\n' "$count" "$desc"
		printf '# %s\n' "${said//$'\n'/$'\n# '}"
	fi
}

documents()
{
	find "$top" -name '*.md' -not -path '*/.*' | sort
}

# prose FILE: its lines outside of blocks of code.
prose()
{
	awk '/^```/ { code = !code; next } !code' "$1"
}

# links FILE: where its links and pictures lead, but for those to other machines.
links()
{
	prose "$1" | tr '\n' ' ' | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//' | grep -v '://'
}

# anchors FILE: its headings, as links name them.
anchors()
{
	prose "$1" | sed -n 's/^##* //p' | tr '[:upper:]' '[:lower:]' |
		sed 's/[^a-z0-9 _-]//g; s/ /-/g'
}

dead_links()
{
	local file link path

	for file in $(documents); do
		for link in $(links "$file"); do
			path=${link%%#*}
			path=${path:+$(dirname "$file")/$path}
			path=${path:-$file}
			if [[ ! -e $path ]]; then
				echo "$file: $link: no such file"
			elif [[ $link == *'#'* ]] && ! anchors "$path" | grep -qx -- "${link#*#}"; then
				echo "$file: $link: no such heading"
			fi
		done
	done
}

unused_pictures()
{
	local picture

	for picture in "$top"/docs/*.svg "$top"/docs/*/*.svg "$top"/docs/*/*.png; do
		[[ ! -e $picture ]] || documents | xargs grep -qF "${picture##*/}" ||
			echo "$picture: nothing links to it"
	done
}

# Tables and blocks of code are as wide as they have to be.
wide_lines()
{
	local file

	for file in $(documents); do
		prose "$file" | grep -v '^|' | LC_ALL=C.UTF-8 grep -E '.{101}' | sed "s|^|$file: |"
	done
	return 0
}

# The folders in the first column of the table, and those that have sources.
# shellcheck disable=SC2016  # backticks of Markdown
listed_folders()
{
	sed -n '/^## Folders/,/^## Build/s/^| \([^|]*\) |.*/\1/p' "$top/CONTRIBUTING.md" |
		grep -o '`[^`]*`' | tr -d '`'
}

missing_folders()
{
	local name

	for name in $(listed_folders); do
		[[ -e $top/$name ]] || echo "CONTRIBUTING.md: there is no $name"
	done
	for name in "$top"/*/ "$top"/tests/*/; do
		name=${name#"$top"/}
		name=${name%/}
		[[ $name == tests ]] || ! find "$top/$name" -type f -not -name '*.cmd' | grep -q . ||
			listed_folders | sed 's|/$||' | grep -qx -- "$name" ||
			echo "CONTRIBUTING.md: $name is not listed"
	done
}

none "every link leads to a file, and to a heading in it" dead_links
none "every picture is linked from somewhere" unused_pictures
none "no line of prose is wider than 100 columns" wide_lines
none "CONTRIBUTING.md lists the folders that there are" missing_folders
printf '1..%d\n' "$count"
