/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: messages */
#ifndef DM_COWSNAP_TARGET_MESSAGE_H
#define DM_COWSNAP_TARGET_MESSAGE_H

#include <linux/device-mapper.h>

/* Of struct target_type. */
int cow_target_message(struct dm_target *ti, unsigned int argc, char **argv,
		       char *result, unsigned int maxlen);

#endif
