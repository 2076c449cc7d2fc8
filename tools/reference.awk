# SPDX-License-Identifier: GPL-2.0-only
# docs/reference.md as a manual page, dm-cowsnap(7). Knows the Markdown that page has: headings,
# paragraphs, code between fences, tables of two columns, bold, code and links in a line.
# Usage: awk -v version=VERSION -f reference.awk reference.md

# What stands between two marks becomes bold.
function bold(text, mark, before, rest, width)
{
	width = length(mark)
	before = ""
	while (i = index(text, mark)) {
		rest = substr(text, i + width)
		n = index(rest, mark)
		if (!n)
			break
		before = before substr(text, 1, i - 1) "\\fB" substr(rest, 1, n - 1) "\\fR"
		text = substr(rest, n + width)
	}
	return before text
}

# [words](page) becomes words.
function unlink(text)
{
	while (match(text, /\[[^]]*\]\([^)]*\)/)) {
		words = substr(text, RSTART + 1, RLENGTH)
		sub(/\].*/, "", words)
		text = substr(text, 1, RSTART - 1) words substr(text, RSTART + RLENGTH)
	}
	return text
}

function roff(text)
{
	gsub(/\\/, "\\e", text)
	gsub(/-/, "\\-", text)
	text = bold(bold(unlink(text), "**"), "`")
	if (text ~ /^[.']/)
		text = "\\&" text
	return text
}

# "| a | b |": the words, then what they mean.
function row(line, cell)
{
	if (line ~ /^\|[-|]*$/)
		return
	gsub(/\\\|/, "\001", line)
	split(line, cell, /[ ]*\|[ ]*/)
	if (cell[2] == "word" || cell[2] ~ /^(feature|message|status|key|parameter)$/)
		return
	gsub(/\001/, "|", cell[2])
	gsub(/\001/, "|", cell[3])
	printf ".TP\n%s\n%s\n", roff(cell[2]), roff(cell[3])
}

BEGIN {
	printf ".\\\" SPDX-License-Identifier: GPL-2.0-only\n"
	printf ".\\\" Made from docs/reference.md.\n"
	printf ".TH DM\\-COWSNAP 7 \"\" \"dm\\-cowsnap %s\" \"Device Mapper\"\n", version
	printf ".SH NAME\ndm\\-cowsnap \\- device\\-mapper targets for snapshots\n"
}

# What comes before the first heading is about the page itself.
/^## / { begun = 1 }
!begun { next }
/^```/ {
	code = !code
	print code ? ".PP\n.nf" : ".fi"
	next
}
code { print roff($0); next }
/^## / { print ".SH \"" toupper(roff(substr($0, 4))) "\""; next }
/^### / { print ".SS \"" roff(substr($0, 5)) "\""; next }
/^\|/ { row($0); next }
/^$/ { blank = 1; next }
{
	if (blank)
		print ".PP"
	blank = 0
	print roff($0)
}

END {
	print ".SH SEE ALSO\n.BR cowsnap (8),\n.BR dmsetup (8)"
}
