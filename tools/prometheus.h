/* SPDX-License-Identifier: GPL-2.0-only */
/* Numbers of origins, stores and snapshots, as Prometheus reads them from a text file. */
#ifndef COWSNAP_TOOLS_PROMETHEUS_H
#define COWSNAP_TOOLS_PROMETHEUS_H

#include "lib/cowsnap.h"

/* Of @chosen and what is inside it; NULL: of all. 0, or EXIT_CANNOT without memory. */
int prometheus_print(struct cowsnap *c, const struct cowsnap_item *chosen);

#endif
