// SPDX-License-Identifier: GPL-2.0-only
/*
 * A plugin for QEMU: how often each block of code was executed between two calls of one
 * function of the guest's kernel.
 *
 * Arguments: mark=ADDRESS (the first and second time that it is executed begin and end the
 * counting), out=FILE (a line for each block: address, instructions, times).
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of QEMU's interface for plugins, version 1, what is used here; Debian has no header of it. */
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;

enum { CB_NO_REGS = 0, INLINE_ADD_U64 = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*cb)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  void (*cb)(unsigned int, void *), int flags, void *data);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *tb, int op, void *ptr,
					      uint64_t imm);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

struct block {
	struct block *next;
	uint64_t address;
	uint64_t nr_instructions;
	uint64_t times;
};

static struct block *blocks;
static uint64_t mark;
static const char *out_path;
static bool counting;

static void write_counts(void)
{
	FILE *out = fopen(out_path, "w");
	struct block *b;

	if (!out)
		return;
	for (b = blocks; b; b = b->next)
		if (b->times)
			fprintf(out, "%" PRIx64 " %" PRIu64 " %" PRIu64 "\n", b->address,
				b->nr_instructions, b->times);
	fclose(out);
}

static void marked(unsigned int cpu, void *data)
{
	struct block *b;

	(void)cpu;
	(void)data;
	if (counting)
		write_counts();
	counting = true;
	for (b = blocks; b; b = b->next)
		b->times = 0;
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	struct block *b = calloc(1, sizeof(*b));

	(void)id;
	if (!b)
		abort();
	b->address = qemu_plugin_tb_vaddr(tb);
	b->nr_instructions = qemu_plugin_tb_n_insns(tb);
	b->next = blocks;
	blocks = b;
	if (b->address == mark)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, marked, CB_NO_REGS, NULL);
	qemu_plugin_register_vcpu_tb_exec_inline(tb, INLINE_ADD_U64, &b->times, 1);
}

__attribute__((visibility("default")))
int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	int i;

	(void)info;
	for (i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "mark=", 5))
			mark = strtoull(argv[i] + 5, NULL, 16);
		else if (!strncmp(argv[i], "out=", 4))
			out_path = strdup(argv[i] + 4);
	}
	if (!mark || !out_path)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
