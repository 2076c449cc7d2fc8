// SPDX-License-Identifier: GPL-2.0-only
/*
 * A plugin for QEMU: what the guest's processors have to tell each other.
 *
 * For each line of 64 bytes of the kernel's memory it remembers which processors have it, as a
 * directory of caches without limit would, and counts the transfers:
 *
 *   r  a read of a line that another processor wrote last
 *   w  a write to a line that this one has not got, and another has
 *   u  a write to a line that this one has, and another as well
 *
 * An instruction with a lock prefix is one write. Each lock is timed, in instructions of the
 * processor that takes it: from the first try (wait) and from the last (hold) until it is let go.
 * Instructions are counted by the task that is current.
 *
 * Processors run in turn, each for some hundred instructions ("slice"), so that what a real one
 * does at the same time is done nearly so. QEMU's own turns are far longer than a request.
 *
 * Counting begins and ends when the function "mark" is executed, for the first and second time,
 * for the third and fourth, and so on. Only then is the guest's code watched at all.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of QEMU's interface for plugins, version 1, what is used here; Debian has no header of it. */
typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;

enum { CB_NO_REGS = 0, MEM_W = 2, MEM_RW = 3 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*cb)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  void (*cb)(unsigned int, void *), int flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
				      void (*cb)(unsigned int, qemu_plugin_meminfo_t, uint64_t,
						 void *),
				      int flags, int rw, void *data);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
void qemu_plugin_reset(qemu_plugin_id_t id, void (*cb)(qemu_plugin_id_t));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);

/* Not part of that interface, but to be seen from a plugin: to end a turn, to see who runs. */
struct CPUState;
struct CPUState *qemu_get_cpu(int index);
void cpu_exit(struct CPUState *cpu);
int cpu_memory_rw_debug(struct CPUState *cpu, uint64_t address, void *buf, uint64_t len,
			bool is_write);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

#define MAX_CPUS	32
#define MAX_HELD	64
#define SLICE_PLAIN	20000	/* instructions, while nothing is counted */
#define KERNEL		0xffff800000000000ULL
#define FIXMAP		0xffffffffff000000ULL	/* behind it: registers of devices */
#define COMM_SIZE	16

/* What the code at an address does to locks, as the host's script says. */
enum class {
	PLAIN,
	TAKES,			/* its locked instructions try to take a lock */
	WAITS,			/* the same, after it was found taken */
	GIVES,			/* its locked instructions let one go */
	SWITCHES,		/* another task has become the current one */
};

struct range {
	uint64_t start, end;
	enum class class;
};

struct block {
	uint64_t address;
	uint64_t nr_instructions;
	enum class class;
};

struct insn {
	uint64_t address;
	enum class class;
	bool locked;
};

/* A lock that a processor holds, or tries to take. */
struct held {
	uint64_t address, caller;
	uint64_t first, last;	/* instructions of the processor, at the first and last try */
	bool contended;
};

struct task {
	struct task *next;
	char comm[COMM_SIZE + 1];
	uint64_t instructions;
};

struct cpu {
	uint64_t instructions;
	int64_t left;		/* of its turn */
	uint64_t outside;	/* the last block that was no function of a lock */
	struct held held[MAX_HELD];
	unsigned int nr_held;
	struct task *task;
};

/* A line of memory: who has it, and whether one of these wrote it last. */
struct line {
	uint64_t number;	/* 0: a free place of the table */
	uint32_t cpus;
	bool dirty;
};

/* How often did an instruction of one processor do something to one address? */
struct event {
	uint64_t address, by;	/* @by 0: a free place of the table */
	uint64_t times;
	uint64_t hold, hold_most, wait, contended;	/* of a lock only */
	char kind;
	uint8_t cpu;
};

struct table {
	char *entries;
	size_t entry_size;
	size_t nr, size;	/* @size is a power of 2 */
};

static struct range *ranges;
static size_t nr_ranges;
static uint64_t mark, offsets, current_task, comm_offset;
static int64_t slice = 200;
static const char *out_path;
static FILE *out;
static bool counting;
static struct cpu cpus[MAX_CPUS];
static struct task *tasks;
static struct table lines = { .entry_size = sizeof(struct line) };
static struct table events = { .entry_size = sizeof(struct event) };
static uint64_t instructions;

static void translated_plain(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);

/* -------------------------------------------------------------------- tables */

static void *must(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

static uint64_t mixed(uint64_t key)
{
	key *= 0x9e3779b97f4a7c15ULL;
	return key ^ key >> 29;
}

static void table_clear(struct table *t, size_t size)
{
	free(t->entries);
	t->entries = must(calloc(size, t->entry_size));
	t->size = size;
	t->nr = 0;
}

static struct line *find_line(uint64_t number);
static struct event *find_event(char kind, unsigned int cpu, uint64_t address, uint64_t by);

/* Twice as large; the entries find new places. */
static void lines_grow(void)
{
	struct table old = lines;
	struct line *l = (struct line *)old.entries;
	size_t i;

	lines.entries = NULL;
	table_clear(&lines, old.size * 2);
	for (i = 0; i < old.size; i++)
		if (l[i].number)
			*find_line(l[i].number) = l[i];
	free(old.entries);
}

static void events_grow(void)
{
	struct table old = events;
	struct event *e = (struct event *)old.entries;
	size_t i;

	events.entries = NULL;
	table_clear(&events, old.size * 2);
	for (i = 0; i < old.size; i++)
		if (e[i].by)
			*find_event(e[i].kind, e[i].cpu, e[i].address, e[i].by) = e[i];
	free(old.entries);
}

static struct line *find_line(uint64_t number)
{
	struct line *l;
	size_t i;

	if (lines.nr * 2 >= lines.size)
		lines_grow();
	for (i = mixed(number);; i++) {
		l = (struct line *)lines.entries + (i & (lines.size - 1));
		if (l->number == number)
			return l;
		if (!l->number)
			break;
	}
	l->number = number;
	lines.nr++;
	return l;
}

static struct event *find_event(char kind, unsigned int cpu, uint64_t address, uint64_t by)
{
	struct event *e;
	size_t i;

	if (events.nr * 2 >= events.size)
		events_grow();
	for (i = mixed(mixed(address + kind) ^ by ^ (uint64_t)cpu << 56);; i++) {
		e = (struct event *)events.entries + (i & (events.size - 1));
		if (e->address == address && e->by == by && e->kind == kind && e->cpu == cpu)
			return e;
		if (!e->by)
			break;
	}
	e->address = address;
	e->by = by;
	e->kind = kind;
	e->cpu = cpu;
	events.nr++;
	return e;
}

/* ------------------------------------------------------------------- phases */

static void write_phase(void)
{
	const struct event *e = (const struct event *)events.entries;
	const struct task *t;
	uint64_t base;
	size_t i;
	int cpu;

	fprintf(out, "phase %" PRIu64 "\n", instructions);
	for (cpu = 0; cpu < MAX_CPUS && qemu_get_cpu(cpu); cpu++)
		if (!cpu_memory_rw_debug(qemu_get_cpu(cpu), offsets + 8 * cpu, &base, sizeof(base),
					 false))
			fprintf(out, "o %d %" PRIx64 " %" PRIu64 "\n", cpu, base,
				cpus[cpu].instructions);
	for (t = tasks; t; t = t->next)
		if (t->instructions)
			fprintf(out, "t %" PRIu64 " %s\n", t->instructions, t->comm);
	for (i = 0; i < events.size; i++) {
		if (!e[i].by || !e[i].times)
			continue;
		fprintf(out, "%c %u %" PRIx64 " %" PRIx64 " %" PRIu64, e[i].kind, e[i].cpu,
			e[i].address, e[i].by, e[i].times);
		if (e[i].kind == 'k')
			fprintf(out, " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64,
				e[i].contended, e[i].hold, e[i].hold_most, e[i].wait);
		fputc('\n', out);
	}
	fflush(out);
}

static void begin_phase(void)
{
	struct task *t;

	table_clear(&lines, 1 << 20);
	table_clear(&events, 1 << 20);
	memset(cpus, 0, sizeof(cpus));
	for (t = tasks; t; t = t->next)
		t->instructions = 0;
	instructions = 0;
}

static void watch(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
}

static void watch_not(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated_plain);
}

static qemu_plugin_id_t own_id;

static void marked(unsigned int cpu, void *data)
{
	(void)cpu;
	(void)data;
	if (counting)
		write_phase();
	else
		begin_phase();
	counting = !counting;
	/* Forgets all translated code, and what was asked for. */
	qemu_plugin_reset(own_id, counting ? watch : watch_not);
}

/* -------------------------------------------------------------------- locks */

static struct held *find_held(struct cpu *c, uint64_t address)
{
	unsigned int i;

	for (i = c->nr_held; i--;)
		if (c->held[i].address == address)
			return &c->held[i];
	return NULL;
}

static void lock_tried(struct cpu *c, uint64_t address, const struct insn *insn)
{
	struct held *h = find_held(c, address);

	/* One that is found taken is tried before that. All else that is written there is a queue. */
	if (!h && insn->class == TAKES && c->nr_held < MAX_HELD) {
		h = &c->held[c->nr_held++];
		h->address = address;
	}
	if (!h)
		return;
	if (insn->class == TAKES) {
		h->first = c->instructions;
		h->caller = c->outside;
		h->contended = false;
	}
	h->contended |= insn->class == WAITS;
	h->last = c->instructions;
}

static void lock_given(struct cpu *c, unsigned int nr_cpu, uint64_t address)
{
	struct held *h = find_held(c, address);
	struct event *e;
	uint64_t hold;

	if (!h)
		return;
	e = find_event('k', nr_cpu, address, h->caller);
	hold = c->instructions - h->last;
	e->times++;
	e->contended += h->contended;
	e->hold += hold;
	if (hold > e->hold_most)
		e->hold_most = hold;
	if (h->contended)
		e->wait += h->last - h->first;
	*h = c->held[--c->nr_held];
}

/* ------------------------------------------------------------ the guest runs */

static void accessed(unsigned int cpu, qemu_plugin_meminfo_t info, uint64_t address, void *data)
{
	const struct insn *insn = data;
	bool store = qemu_plugin_mem_is_store(info);
	uint32_t me = UINT32_C(1) << cpu;
	struct cpu *c = &cpus[cpu];
	struct line *l;
	char kind = 0;

	if (address < KERNEL || address >= FIXMAP || !counting)
		return;
	l = find_line(address >> 6);
	if (store) {
		if (l->cpus & ~me)
			kind = l->cpus & me ? 'u' : 'w';
		l->cpus = me;
		l->dirty = true;
	} else if (!(l->cpus & me)) {
		if (l->cpus && l->dirty)
			kind = 'r';
		/* Once it has been handed on all who have it have the same. */
		if (l->cpus)
			l->dirty = false;
		l->cpus |= me;
	}
	if (kind)
		find_event(kind, cpu, address & ~UINT64_C(7), insn->address)->times++;
	if (!store)
		return;
	if (insn->locked)
		find_event('l', cpu, address & ~UINT64_C(63), insn->address)->times++;
	if (insn->class == WAITS || (insn->class == TAKES && insn->locked))
		lock_tried(c, address & ~UINT64_C(3), insn);
	else if (c->nr_held && (!insn->locked || insn->class == GIVES))
		lock_given(c, cpu, address);
}

static struct task *find_task(const char *comm)
{
	struct task *t;

	for (t = tasks; t; t = t->next)
		if (!strcmp(t->comm, comm))
			return t;
	t = must(calloc(1, sizeof(*t)));
	strcpy(t->comm, comm);
	t->next = tasks;
	tasks = t;
	return t;
}

static void look_who_runs(unsigned int cpu)
{
	struct CPUState *state = qemu_get_cpu(cpu);
	uint64_t base, task;
	char comm[COMM_SIZE + 1] = "";

	if (cpu_memory_rw_debug(state, offsets + 8 * cpu, &base, sizeof(base), false) ||
	    cpu_memory_rw_debug(state, base + current_task, &task, sizeof(task), false) ||
	    cpu_memory_rw_debug(state, task + comm_offset, comm, COMM_SIZE, false))
		return;
	cpus[cpu].task = find_task(comm);
}

static void executed(unsigned int cpu, void *data)
{
	const struct block *b = data;
	struct cpu *c = &cpus[cpu];

	if (!counting)
		return;
	if (!c->task || b->class == SWITCHES)
		look_who_runs(cpu);
	c->instructions += b->nr_instructions;
	instructions += b->nr_instructions;
	if (c->task)
		c->task->instructions += b->nr_instructions;
	if (b->class == PLAIN)
		c->outside = b->address;
	c->left -= b->nr_instructions;
	if (c->left <= 0) {
		c->left = slice;
		cpu_exit(qemu_get_cpu(cpu));
	}
}

/* ------------------------------------------------------------- translation */

static enum class class_of(uint64_t address)
{
	size_t low = 0, high = nr_ranges;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (ranges[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < nr_ranges && ranges[low].start <= address ? ranges[low].class : PLAIN;
}

/* A lock prefix, or an exchange with memory, which needs none. */
static bool is_locked(const struct qemu_plugin_insn *insn)
{
	const uint8_t *code = qemu_plugin_insn_data(insn);
	size_t i, size = qemu_plugin_insn_size(insn);

	for (i = 0; i + 1 < size; i++) {
		if (code[i] == 0xf0)
			return true;
		if ((code[i] == 0x86 || code[i] == 0x87) && code[i + 1] < 0xc0)
			return true;
		if (code[i] != 0x66 && code[i] != 0x65 && code[i] != 0x3e &&
		    (code[i] & 0xf0) != 0x40)
			return false;
	}
	return false;
}

static void watch_insn(struct qemu_plugin_insn *qemu_insn)
{
	struct insn *insn = must(calloc(1, sizeof(*insn)));

	insn->address = qemu_plugin_insn_vaddr(qemu_insn);
	insn->locked = is_locked(qemu_insn);
	insn->class = class_of(insn->address);
	qemu_plugin_register_vcpu_mem_cb(qemu_insn, accessed, CB_NO_REGS,
					 insn->locked ? MEM_W : MEM_RW, insn);
}

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	struct block *b = must(calloc(1, sizeof(*b)));
	size_t i;

	(void)id;
	b->address = qemu_plugin_tb_vaddr(tb);
	b->nr_instructions = qemu_plugin_tb_n_insns(tb);
	b->class = class_of(b->address);
	if (b->address == mark)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, marked, CB_NO_REGS, NULL);
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, CB_NO_REGS, b);
	if (b->address >= KERNEL)
		for (i = 0; i < b->nr_instructions; i++)
			watch_insn(qemu_plugin_tb_get_insn(tb, i));
}

/* Processors that wait for each other wait for long, if none has to end its turn. */
static void executed_plain(unsigned int cpu, void *data)
{
	struct cpu *c = &cpus[cpu];

	c->left -= (uintptr_t)data;
	if (c->left <= 0) {
		c->left = SLICE_PLAIN;
		cpu_exit(qemu_get_cpu(cpu));
	}
}

static void translated_plain(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed_plain, CB_NO_REGS,
					     (void *)(uintptr_t)qemu_plugin_tb_n_insns(tb));
	if (qemu_plugin_tb_vaddr(tb) == mark)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, marked, CB_NO_REGS, NULL);
}

/* -------------------------------------------------------------------- start */

/* What the script has found in the guest's symbols, a line for each thing. */
static bool read_ranges(const char *path)
{
	FILE *in = fopen(path, "r");
	struct range r;
	char what;

	if (!in)
		return false;
	ranges = must(calloc(4096, sizeof(*ranges)));
	while (nr_ranges < 4096 &&
	       fscanf(in, " %c %" SCNx64 " %" SCNx64, &what, &r.start, &r.end) == 3) {
		r.class = what == 't' ? TAKES : what == 'w' ? WAITS : what == 'g' ? GIVES :
			  SWITCHES;
		ranges[nr_ranges++] = r;
	}
	fclose(in);
	return nr_ranges;
}

__attribute__((visibility("default")))
int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	const char *locks = NULL;
	int i;

	(void)info;
	own_id = id;
	for (i = 0; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value++)
			return -1;
		if (!strncmp(argv[i], "mark=", 5))
			mark = strtoull(value, NULL, 16);
		else if (!strncmp(argv[i], "offsets=", 8))
			offsets = strtoull(value, NULL, 16);
		else if (!strncmp(argv[i], "current=", 8))
			current_task = strtoull(value, NULL, 16);
		else if (!strncmp(argv[i], "comm=", 5))
			comm_offset = strtoull(value, NULL, 10);
		else if (!strncmp(argv[i], "slice=", 6))
			slice = strtoll(value, NULL, 10);
		else if (!strncmp(argv[i], "locks=", 6))
			locks = value;
		else if (!strncmp(argv[i], "out=", 4))
			out_path = strdup(value);
	}
	if (!mark || !offsets || !out_path || !locks || !read_ranges(locks))
		return -1;
	out = fopen(out_path, "w");
	if (!out)
		return -1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated_plain);
	return 0;
}
