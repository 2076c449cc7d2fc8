/* SPDX-License-Identifier: GPL-2.0-only */
/* dm-cowsnap: the origin where part of it is in a store that redirects */
#ifndef DM_COWSNAP_IO_REDIRECT_H
#define DM_COWSNAP_IO_REDIRECT_H

struct cow_bio;

/* What cow_redirect_write() says of a bio, if it is none of DM_MAPIO_*. */
#define COW_NOT_REDIRECTED	(-1)

/*
 * A write to an origin with ->redirects_to, behind what is sealed, with the gate held. Returns
 * DM_MAPIO_*, for the first part of @cb, which *@part becomes; or COW_NOT_REDIRECTED: all of @cb
 * is at home, and is decided on as ever. Then the gate is still held. Context: process; never
 * sleeps.
 */
int cow_redirect_write(struct cow_bio *cb, struct cow_bio **part);

/* A read of such an origin. Returns DM_MAPIO_*. Context: as above, without the gate. */
int cow_redirect_read(struct cow_bio *cb, struct cow_bio **part);

#endif
