/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: what older kernels lack of device mapper */
#ifndef DM_COWSNAP_OLD_DM_H
#define DM_COWSNAP_OLD_DM_H

#include <linux/device-mapper.h>

/* Since 5.15. Earlier kernels never ask for it; a case that is no enumerator gives a warning. */
#ifndef COWSNAP_HAS_STATUS_IMA
#define STATUSTYPE_IMA	2
#define status_type_t	unsigned int
#endif

#ifndef DMEMIT_TARGET_NAME_VERSION
#define DMEMIT_TARGET_NAME_VERSION(y) do { \
	const struct target_type *type_ = (y); \
	DMEMIT("target_name=%s,target_version=%u.%u.%u", type_->name, type_->version[0], \
	       type_->version[1], type_->version[2]); \
} while (0)
#endif

#endif
