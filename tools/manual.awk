# SPDX-License-Identifier: GPL-2.0-only
# The page of one command, cowsnap-COMMAND(8), out of cowsnap(8): its section there, and what holds
# for all of them.
# Usage: awk -v command=COMMAND -v words=SUMMARY -f manual.awk cowsnap.8

function head(page, usage)
{
	sub(/COWSNAP/, "COWSNAP\\-" toupper(command), page)
	print ".\\\" SPDX-License-Identifier: GPL-2.0-only"
	print page
	print ".SH NAME\ncowsnap\\-" command " \\- " words
	print ".SH SYNOPSIS\n.B cowsnap " command
	sub("^" command " ?", "", usage)
	if (usage)
		print usage
	print ".SH DESCRIPTION"
}

/^\.TH / { page = $0 }

/^\.S[SH] / {
	ours = $1 == ".SS" && $2 == "\"" command
	ends = $0 == ".SH EXIT STATUS"
	if (ours) {
		gsub(/^\.SS "|"$/, "")
		head(page, $0)
		next
	}
	if (ends)
		print
	next
}

ours || ends

END { print ".SH SEE ALSO\n.BR cowsnap (8),\n.BR dm\\-cowsnap (7)" }
