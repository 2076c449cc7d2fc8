// SPDX-License-Identifier: GPL-2.0-only
/*
 * Allocations fail that are made in chosen code, in kernels that have no fault injection: those of
 * memory by the byte, or, if the module is loaded with @pages, those of pages.
 *
 * An allocation fails if it has been asked for, however far down, by a function that
 * begins at @start and ends before @end, as /proc/kallsyms has them. With @fail 0, as at
 * first, none fails; otherwise @skip come through (with @pages, so many pages), then so many
 * allocations fail, or, with -1, all.
 *
 * A probe at the entry of each allocator returns NULL in its place.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/stacktrace.h>

#define DEPTH	32

static unsigned long start, end;
module_param(start, ulong, 0600);
MODULE_PARM_DESC(start, "address of the code whose allocations fail");
module_param(end, ulong, 0600);
MODULE_PARM_DESC(end, "address of the end of this code");

static int fail;
module_param(fail, int, 0600);
MODULE_PARM_DESC(fail, "how many are to fail; -1: all");

static int skip;
module_param(skip, int, 0600);
MODULE_PARM_DESC(skip, "how many come through before, or how many pages");

static bool pages;
module_param(pages, bool, 0400);
MODULE_PARM_DESC(pages, "allocations of pages are to fail, not others");

static int failed;
module_param(failed, int, 0600);
MODULE_PARM_DESC(failed, "how many have failed");

static DEFINE_RAW_SPINLOCK(count_lock);

/* A probe that is a breakpoint counts as an NMI, whatever it has interrupted. */
static bool was_task(void)
{
	unsigned int count = preempt_count();

	if (in_nmi())
		count -= NMI_OFFSET + HARDIRQ_OFFSET;
	return !(count & (NMI_MASK | HARDIRQ_MASK | SOFTIRQ_OFFSET));
}

static bool is_chosen(unsigned long address)
{
	return start <= address && address < end;
}

/*
 * With frame pointers the trace lacks the caller of the allocator, which has not made a frame yet:
 * that is on top of the stack.
 */
static bool has_chosen_caller(struct pt_regs *regs)
{
	unsigned long entries[DEPTH];
	unsigned int i, nr = stack_trace_save(entries, DEPTH, 0);

	for (i = 0; i < nr; i++)
		if (is_chosen(entries[i]))
			return true;
	return is_chosen(regs_get_kernel_stack_nth(regs, 0));
}

/* Of an allocation that counts as @nr where some come through before. */
static bool take_failure(int nr)
{
	unsigned long flags;
	bool taken;

	raw_spin_lock_irqsave(&count_lock, flags);
	taken = fail && !skip;
	if (taken && fail > 0)
		fail--;
	skip = max(skip - nr, 0);
	failed += taken;
	raw_spin_unlock_irqrestore(&count_lock, flags);
	return taken;
}

/* Called in place of the allocator: its result has been set. */
static noinline notrace void return_at_once(void)
{
}

static int allocator_called(struct kprobe *p, struct pt_regs *regs)
{
	/* The second argument of those who allocate pages is the order. */
	int nr = pages ? 1 << regs_get_kernel_argument(regs, 1) : 1;

	if (!READ_ONCE(fail) || !was_task() || !has_chosen_caller(regs) || !take_failure(nr))
		return 0;
	regs_set_return_value(regs, 0);
	instruction_pointer_set(regs, (unsigned long)return_at_once);
	return 1;
}

/* With this the probe is not made a jump, which could not go elsewhere. */
static void allocator_stepped(struct kprobe *p, struct pt_regs *regs, unsigned long flags)
{
}

/* Their names, in the kernels that there are; nested ones do no harm. */
static const char * const names[] = {
	"kmem_cache_alloc", "kmem_cache_alloc_noprof",
	"kmem_cache_alloc_trace", "kmalloc_trace", "kmalloc_trace_noprof", "__kmalloc_cache_noprof",
	"__kmalloc", "__kmalloc_noprof",
	"kvmalloc_node", "__kvmalloc_node_noprof",
};

/* The same of pages, of which the first that there is sees each allocation once. */
static const char * const names_of_pages[] = {
	"__alloc_frozen_pages_noprof", "__alloc_pages_noprof", "__alloc_pages",
	"__alloc_pages_nodemask",
};

static struct kprobe probes[ARRAY_SIZE(names)];
static unsigned int nr_probes;

static void __exit cowfault_exit(void)
{
	while (nr_probes)
		unregister_kprobe(&probes[--nr_probes]);
}

/* Where the kernel has a function of this name. */
static void probe(const char *name)
{
	struct kprobe *p = &probes[nr_probes];

	p->symbol_name = name;
	p->pre_handler = allocator_called;
	p->post_handler = allocator_stepped;
	if (!register_kprobe(p))
		nr_probes++;
}

static int __init cowfault_init(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(names) && !pages; i++)
		probe(names[i]);
	for (i = 0; i < ARRAY_SIZE(names_of_pages) && pages && !nr_probes; i++)
		probe(names_of_pages[i]);
	return nr_probes ? 0 : -ENOENT;
}

module_init(cowfault_init);
module_exit(cowfault_exit);
MODULE_DESCRIPTION("dm-cowsnap tests: failing allocations");
MODULE_LICENSE("GPL");
