/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * dm-cowsnap: the differences between kernels, so that no other file knows them.
 *
 * The code reads as if for the newest kernel; what older ones lack is made up
 * here and in old/. Kbuild asks the headers, not the version, since distributions
 * backport: each piece stands alone.
 */
#ifndef DM_COWSNAP_COMPAT_H
#define DM_COWSNAP_COMPAT_H

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/device-mapper.h>
#include <linux/lockdep.h>

#include "old/bdev.h"
#include "old/bio.h"
#include "old/dm.h"

#ifdef COWSNAP_HAS_MAPLE_TREE
#include <linux/maple_tree.h>
#else
#include "old/maple_tree.h"
#endif

/* Since 5.15; before, the compiler's own was used. */
#ifdef COWSNAP_HAS_STDARG
#include <linux/stdarg.h>
#else
#include <stdarg.h>
#endif

/* Since 5.12. Nothing is lost without it: the debug kernels are newer. */
#ifndef lockdep_assert
#define lockdep_assert(cond)	do { } while (0)
#endif

#endif
