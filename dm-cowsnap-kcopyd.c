// SPDX-License-Identifier: GPL-2.0-only
/*
 * dm-cowsnap: the copy engine
 *
 * A job reads one run of sectors once and hands the data on: its owner looks at
 * it (all zero?), decides where it goes, and may write it to any number of
 * places. Each origin has an engine of its own.
 *
 *     submit --> waiting --> reading --> read --> writing --> written --> done
 *                needs pages   bios     ->ready    bios      pages free
 *       |  |       ^     ^       |  ^
 *       |  +-> later     +-------+  | (the task would have to wait)
 *       |     (a bio needs it)      |
 *       +-- in map, of one page ----+
 *
 * A kernel thread, the engine's worker, moves jobs along; it alone takes a job off a list.
 * Callers and completions put jobs on lists, in any context. The thread is the engine's own:
 * tasks on the origin's workqueue wait for the engine, so they must not take its place when no
 * further thread can be made; and it is woken with half the work of a workqueue. Copies are never
 * made in a task that writes: it may be about to sleep, may hold back other callbacks of its
 * plug that the devices below wait for, and may be limited by its cgroup.
 *
 * Only the first read may be sent by such a task, where it takes no more than that: it is one
 * page, no other copy is in front of it, and the read has REQ_NOWAIT, so that the task never
 * sleeps for it. It counts as the worker's for cgroups. A device that would have it wait, or knows
 * no REQ_NOWAIT, refuses it, and the worker reads; where the origin is on a driver of bios (md, dm)
 * the worker always does: see knows_nowait(). The read goes into the plug of the task, which
 * ends with its write, or when it sleeps; if the plug has anything in it already, the task sends
 * many, and the worker reads. So no more than one copy is held back with a task that is taken off
 * its processor, and the worker is woken once for each, not twice.
 *
 * Order. There are two queues: one for copies that bios wait for, and one for speculative
 * copies, which run only when the first is empty and leave half of the pages to it. A bio
 * that comes to need a speculative copy moves it to the first queue. In each queue jobs get
 * their pages, and are read, in the order in which they came. A job that finds too few pages
 * goes back to the head of its queue, and the jobs behind it wait as well: a sequential
 * writer's copies stay sequential, however short memory is. kcopyd_requeue=tail puts such a
 * job behind the others instead, as kernels before 2.6.28 did, to compare.
 *
 * A rotational disk that serves what is nearest leaves requests behind as long as others come. So
 * copies of it that bios wait for go on in the order in which they were begun: those that have
 * been read early wait, and once they are ORDER_EARLY no further copy is read before the first one
 * is. Of large ones ORDER_LARGE are enough. One that the disk does not bring is waited for during
 * half a second; but no more than ORDER_READING large ones are read at a time, however long it
 * takes. An array has many heads, each with requests of its own: there a copy would wait for those
 * of other disks. With a store on a disk of its own no large copy waits, but once ORDER_PASSED
 * have gone on before the first one is read no further copy is read.
 *
 * Nor does such a disk care who waits: the writes of speculative copies, and those of their tables,
 * are near to each other, and a needed copy would be left behind them. So speculative copies, once
 * read, are put aside until no bio waits for a copy, and the small writes of home that follow have
 * ended: for a 20th of a second at most. One that a bio comes to need goes on at once.
 *
 * Gathering. Small copies that have been read wait for others of these that are being read, and
 * are then written together: their places are neighbours, and so are their slots in the tables. No
 * copy waits for another kind of job, which may read from a slower device. Where nothing has to
 * seek they wait for most of those that were being read, some 50 ms at most. While the processor
 * is never idle, and a commit delays whatever else it has to do, they also wait for those that are
 * being written and for the bios that go home behind these, unless they are many more. Copies that
 * are complete once they are in memory, and gain nothing but fewer turns of the worker, wait only
 * while the processor has other work. A rotational disk that has to seek to the store and back
 * waits until few are left, also of those written before and of the bios that waited for these:
 * each of them is likely to be followed by another small copy. So the writers take turns together,
 * and a disk that serves what is nearest leaves none of them behind. If the origin's disk has a
 * volatile cache, the next ones are not even read before these bios have ended: see holds_back().
 * The engine recognises a quick store by its writes, which take much less than reads; on the same
 * disk they take as long as the reads in the same queue. A disk of its own that is no quicker
 * shows by requests that end together: see note_apart(). An array that takes writes sooner than it
 * reads has a cache, which many heads empty: there no copy waits for others.
 *
 * Promise kept here: I7, the engine's share. All pages are allocated beforehand, enough for
 * the largest job. A job holds pages only while I/O is in flight, its own or that of copies it
 * waits for, so pages always come back without further memory. Bios come from a pool for which the
 * same is true. Pages of a store that is closed are freed by the worker.
 */
#include <linux/crc32c.h>
#include <linux/kthread.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/workqueue.h>

#include "dm-cowsnap-compat.h"
#include "dm-cowsnap-kcopyd.h"

#define ENGINE_MIN_BUDGET_KIB	16U
#define ENGINE_MAX_BUDGET_KIB	1048576U

/*
 * The budget, unless it is set: room for so many jobs, within these limits. With fewer the disk's
 * head goes back and forth between home and the store, where it could read everything first and
 * then write.
 */
#define ENGINE_BUDGET_JOBS	128U
#define ENGINE_BUDGET_KIB	8192U
#define ENGINE_BUDGET_MOST_KIB	65536U
/* And no more than this part of all memory. */
#define ENGINE_BUDGET_SHARE	32U

/*
 * An engine begins with so much of its budget, or with what its largest job needs. Whenever a job
 * lacks pages, or could be larger, more comes, in steps that double what there is, up to so much at
 * a time. So whoever makes a snapshot, with the origin suspended, does not wait for it, and one
 * that is little used does without. If memory is short, the next step is so many jiffies later.
 */
#define ENGINE_FIRST_KIB	1024U
#define ENGINE_STEP_KIB		4096U
#define ENGINE_REST_AGAIN	HZ

/*
 * While it has more than it keeps, it looks so often how much of that has been free all along, and
 * gives half of it back.
 */
#define ENGINE_KEPT_KIB		8192U
#define ENGINE_LOOK		(10 * HZ)

/* No job is larger, if it is not one chunk: what is kept is enough for it, and to read the next. */
#define ENGINE_JOB_KIB		(ENGINE_KEPT_KIB / 2)

/* So many pages are allocated together: 2^PAGES_ORDER. */
#define PAGES_ORDER		4U

/* After this many rounds the work ends, for kthread_flush_work(), and is queued again. */
#define ENGINE_ROUNDS		64U

/* The worker leaves so many free pages, if it has them, to reads that are sent in map. */
#define ENGINE_SHARED		64U

/* How many writes at a time are put in order of their places; BIO_MAX_VECS at most. */
#define ENGINE_SORTED		64

/* With a throttle, the longest slice of copying before a rest. */
#define THROTTLE_SLICE_NS	(40 * NSEC_PER_MSEC)
/* The longest that copies rest after a slice. */
#define REST_MAX_NS		(10 * NSEC_PER_SEC)

/* Gathered copies are written once they outnumber those that they wait for by this factor. */
#define GATHER_FACTOR		16U
/* The same where writes of home go to a cache, and copies that come later are held back. */
#define GATHER_FACTOR_CACHED	1U
/* Where nothing has to seek, once they outnumber those that are being read by this one. */
#define GATHER_FACTOR_QUICK	4U
/* A processor that so many in a row have found busy has no time to spare. */
#define GATHER_BUSY		16U
/* They are not gathered if reading takes so many times as long as writing: the store is quick. */
#define QUICK_STORE		4U
#define QUICK_STORE_CACHED	16U
/*
 * A disk serves one request after the other. So if a read and a write are under way together, and
 * one ends sooner after the other than a quarter of the time between the ends of two reads, the
 * store is on another disk. Each such pair adds APART_TELLS to a score, up to APART_MOST; each
 * other pair takes one away. The store counts as apart from APART_FROM on, and until the score is
 * below APART_UNTIL.
 */
#define APART_PART		4
#define APART_TELLS		16U
#define APART_MOST		64U
#define APART_FROM		24U
#define APART_UNTIL		8U
/* The disk may have stood still between two reads: longer times count as this. */
#define GAP_MOST_NS		(100 * NSEC_PER_MSEC)
/* With a throttle they wait only for those that are being read. */
#define GATHER_FACTOR_THROTTLED	3U
/* The longest that they wait: a device may hold one request back, and answer the others. */
#define GATHER_MOST		(HZ / 2)
#define GATHER_MOST_QUICK	(HZ / 20 + 1)
/* Once so many copies have been read before the first one no more is begun. */
#define ORDER_EARLY		20U
/* So do fewer with so much. */
#define ORDER_LARGE		4U
#define ORDER_LARGE_SECTORS	(4U << 20 >> SECTOR_SHIFT)
/* Nor is one begun while so many with so much are being read: the first may be left behind. */
#define ORDER_READING		8U
#define ORDER_READING_SECTORS	(8U << 20 >> SECTOR_SHIFT)
/* With a store on a disk of its own large ones pass the first. After so many none is begun. */
#define ORDER_PASSED		1U
/* The first one is passed over if the disk has not brought it by then. */
#define ORDER_MOST		(HZ / 2)
/* Speculative copies that have been read are put aside for so long at most. */
#define ASIDE_MOST		(HZ / 20 + 1)
/* A larger write of home takes a disk longer than the seek to it. */
#define SMALL_WRITE_SECTORS	128U
/* How soon a writer whose bio has ended is expected to send the next one; in jiffies. */
#define COMES_BACK		2

/* At first the store is taken for a disk, perhaps the same one. */
#define WRITE_NS_AT_FIRST	NSEC_PER_MSEC

static unsigned int kcopyd_budget;
module_param(kcopyd_budget, uint, 0644);
MODULE_PARM_DESC(kcopyd_budget,
		 "KiB of pages each origin's copy engine has once it needs them (16 to 1048576; for stores opened later; default 0: 8192, more for large chunks)");

static int kcopyd_requeue_set(const char *value, const struct kernel_param *kp);
static int kcopyd_requeue_get(char *buffer, const struct kernel_param *kp);

static const struct kernel_param_ops kcopyd_requeue_ops = {
	.set = kcopyd_requeue_set,
	.get = kcopyd_requeue_get,
};

static bool requeue_at_tail;
module_param_cb(kcopyd_requeue, &kcopyd_requeue_ops, NULL, 0644);
MODULE_PARM_DESC(kcopyd_requeue,
		 "where a copy that lacks memory goes back into the queue: head (default) or tail");

/* What the worker does. To queue a work item that runs costs the wakeup of a second task. */
enum engine_state {
	ENGINE_IDLE,
	ENGINE_RUNS,
	ENGINE_WANTED,			/* it is queued, or goes round once more */
};

/* Some of those that go on in order. */
struct cow_jobs {
	unsigned int nr;
	sector_t sectors;		/* of all of them */
};

struct cow_engine {
	struct kthread_worker *worker;
	struct kthread_work work;
	atomic_t state;			/* enum engine_state */
	struct kthread_delayed_work unpause;	/* after a rest */
	struct kthread_delayed_work wake_later;
	struct kthread_delayed_work gathered;	/* they have waited enough; set under queue_lock */
	struct kthread_delayed_work aside_over;	/* so have those that were put aside; the same */
	const struct cow_engine_ops *ops;
	void *context;			/* of these */
	bool rotational;		/* the origin is rotational, */
	bool cached;			/* and has a volatile cache */
	bool one_head;			/* or looks like a single disk */
	struct bio_set bios;

	spinlock_t queue_lock;		/* guards what follows; taken with irqs off */
	struct list_head waiting;	/* bios wait for these */
	struct list_head writing;	/* and for these, which have data of their own */
	struct list_head later;		/* speculative */
	u64 nr_submitted;		/* jobs so far */
	ktime_t last_ended;		/* when a disk last read or wrote one, */
	bool last_written;		/* which of both, */
	u64 gap_ns;			/* and what lies between two reads: a mean */
	unsigned int tells_apart;	/* the score of APART_PART */
	struct list_head read;
	struct list_head patient;	/* the same, but these may be gathered */
	struct list_head aside;		/* speculative ones that have been read */
	unsigned long aside_until;	/* jiffies, for the first of them */
	struct list_head written;
	unsigned int nr_reading, nr_read;	/* of patient jobs: being read, and read */
	unsigned int nr_going;		/* these later, and bios that waited for them */
	unsigned int nr_homes;		/* bios that what was put aside waits for */
	unsigned int nr_expected;	/* as many writers are likely to come back, */
	unsigned long expected_until;	/* until these jiffies */
	unsigned long gather_until;	/* jiffies, for those that have been read */
	unsigned long hold_until;	/* the same, for those that are held back */
	bool held;			/* there are some */
	bool enough;			/* or they wait no longer */
	struct list_head order;		/* copies that go on in order, the first begun first */
	struct cow_jobs early;		/* of these, read; its nr READ_ONCE without lock */
	struct cow_jobs unread;		/* of these, being read */
	unsigned int nr_passed;		/* that were read, and have passed the first one */
	unsigned long order_until;	/* jiffies, for the first of them */
	bool overtaken;			/* no more are begun: is_overtaken() */
	unsigned int nr_busy;		/* so many of the last found the processor busy */
	struct bio_list alone;		/* of batches that failed */
	struct cow_pages given;		/* free, until the worker takes them over */
	long nr_pages;			/* all there are, in use or not */
	long nr_wanted;			/* for jobs, and for those that are kept */
	unsigned int nr_base;		/* of nr_wanted, for jobs; READ_ONCE without lock */

	struct mutex base_lock;		/* guards the changes of nr_base, and: */
	unsigned int nr_budget;		/* what it is to be; READ_ONCE without lock */
	unsigned int nr_first;		/* what it begins with; the same */

	struct delayed_work rest;	/* the next step towards nr_budget */
	unsigned long rest_after;	/* not before, in jiffies; READ_ONCE, WRITE_ONCE */
	bool wants_rest;		/* some has lacked since the last came; the same */
	struct delayed_work give_back;	/* what has not been used of it */
	unsigned int nr_least;		/* pages free at least since it last looked; the same */

	bool apart;			/* the store seems to be on a disk of its own; the same */
	bool at_once;			/* the last write completed inside submit_bio() */
	bool always_waits;		/* no read of the origin is sent in map */

	/* Only the worker looks at these. */
	bool again;			/* it has to go round once more */
	struct list_head ended;		/* written, inside of its submit_bio() */
	struct cow_pages free;
	u64 read_ns;			/* how long a job takes on a rotational disk: a mean */
	u64 write_ns;			/* the same of writing it */
	struct bio_list writes;		/* to be submitted by the end of this round */
	struct bio *sorted[ENGINE_SORTED];	/* some of them, on their way */
	unsigned int nr_active;		/* jobs that have pages */
	unsigned int nr_most;		/* of these, since the slice began */
	unsigned int slice_share;	/* percent of time in force when it began */
	ktime_t slice_start;
	ktime_t noted;			/* busy_ns counts until then */
	u64 busy_ns;			/* of all active jobs together */
	ktime_t pause_until;

	unsigned int throttle;		/* percent of time; READ_ONCE, WRITE_ONCE */
	bool hurry;			/* the same; no rest for now */
	bool closing;			/* the same; nor does any copy wait for others */
	struct cow_engine_stats stats;	/* written by the worker */
};

static int kcopyd_requeue_set(const char *value, const struct kernel_param *kp)
{
	if (sysfs_streq(value, "head"))
		requeue_at_tail = false;
	else if (sysfs_streq(value, "tail"))
		requeue_at_tail = true;
	else
		return -EINVAL;
	return 0;
}

static int kcopyd_requeue_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%s\n", requeue_at_tail ? "tail" : "head");
}

/* --------------------------------------------------------------------- pages */

static unsigned int kib_to_pages(unsigned int kib)
{
	return kib >> (PAGE_SHIFT - 10);
}

static unsigned int sectors_to_pages(unsigned int sectors)
{
	return DIV_ROUND_UP(sectors, PAGE_SECTORS);
}

/* Each page of a chain names the next one, in what struct page leaves to the page's owner. */
static struct page *page_next(struct page *page)
{
	return (struct page *)page_private(page);
}

static void page_set_next(struct page *page, struct page *next)
{
	set_page_private(page, (unsigned long)next);
}

/* Put @from in front of @to. */
static void pages_join(struct cow_pages *to, struct cow_pages *from)
{
	if (!from->nr)
		return;
	if (to->nr)
		page_set_next(from->last, to->first);
	else
		to->last = from->last;
	to->first = from->first;
	to->nr += from->nr;
	from->nr = 0;
}

/* Move the first @nr, at most all, of @from to @to, which is empty. */
static void pages_cut(struct cow_pages *from, unsigned int nr, struct cow_pages *to)
{
	unsigned int i;

	to->first = from->first;
	to->nr = nr;
	from->nr -= nr;
	for (i = 0; i < nr; i++) {
		to->last = from->first;
		from->first = page_next(from->first);
	}
}

static void pages_free(struct cow_pages *pages)
{
	struct page *page;

	for (; pages->nr; pages->nr--) {
		page = pages->first;
		pages->first = page_next(page);
		set_page_private(page, 0);
		__free_page(page);
	}
}

static void pages_add(struct cow_pages *pages, struct page *page)
{
	struct cow_pages one = { .first = page, .last = page, .nr = 1 };

	pages_join(pages, &one);
}

/* One page, or several that are neighbours, if the kernel has that at once: 2^@order. */
static int pages_alloc_some(struct cow_pages *pages, unsigned int order, gfp_t gfp)
{
	struct page *page = alloc_pages(order ? gfp | __GFP_NORETRY | __GFP_NOWARN : gfp, order);
	unsigned int i;

	if (!page)
		return -ENOMEM;
	split_page(page, order);
	/* They are used from the last one added on. */
	for (i = 1U << order; i; i--)
		pages_add(pages, page + i - 1);
	return 0;
}

/* To ask for each page by itself takes as long again as to clear it. */
static int pages_alloc(struct cow_pages *pages, long nr, gfp_t gfp)
{
	unsigned int order = PAGES_ORDER;
	int r = 0;

	while ((long)pages->nr < nr && !r) {
		while (pages->nr + (1L << order) > nr)
			order--;
		r = pages_alloc_some(pages, order, gfp);
		if (r && order) {
			order = 0;
			r = 0;
		}
		cond_resched();
	}
	return r;
}

/* From others to the worker. */
static void take_given(struct cow_engine *e)
{
	spin_lock_irq(&e->queue_lock);
	pages_join(&e->free, &e->given);
	spin_unlock_irq(&e->queue_lock);
}

/* To others from the worker. */
static void share_pages(struct cow_engine *e)
{
	if (!e->free.nr || READ_ONCE(e->given.nr) >= ENGINE_SHARED)
		return;
	spin_lock_irq(&e->queue_lock);
	pages_join(&e->given, &e->free);
	spin_unlock_irq(&e->queue_lock);
}

static void job_get_pages(struct cow_job *job, struct cow_pages *from, unsigned int nr)
{
	pages_cut(from, nr, &job->pages);
	job->cursor = job->pages.first;
	job->cursor_index = 0;
}

static unsigned long rest_wait(const struct cow_engine *e)
{
	long wait = READ_ONCE(e->rest_after) - jiffies;

	return clamp_t(long, wait, 0, ENGINE_REST_AGAIN);
}

/* A job lacks pages, or could be larger: the engine is to have more of its budget. Any context. */
static void want_rest(struct cow_engine *e)
{
	if (READ_ONCE(e->nr_base) >= READ_ONCE(e->nr_budget))
		return;
	WRITE_ONCE(e->wants_rest, true);
	/* Does nothing if it is queued already. */
	schedule_delayed_work(&e->rest, rest_wait(e));
}

static unsigned int nr_free(const struct cow_engine *e)
{
	return READ_ONCE(e->free.nr) + READ_ONCE(e->given.nr);
}

static void note_least(struct cow_engine *e)
{
	unsigned int nr = nr_free(e);

	if (nr < READ_ONCE(e->nr_least))
		WRITE_ONCE(e->nr_least, nr);
}

/* Speculative jobs get half of the pages at most, so that others need not wait. */
static bool job_take_pages(struct cow_engine *e, struct cow_job *job)
{
	unsigned int want = job->bdev || job->own_data ?
		sectors_to_pages(job->nr_sectors + job->pad_sectors) : 0;
	unsigned int base = READ_ONCE(e->nr_base), spare = 0;

	/* If no other job has pages there are always enough for one. */
	if (READ_ONCE(job->speculative) && want < base)
		spare = min(base / 2, base - want);
	if (e->free.nr < want + spare)
		take_given(e);
	if (e->free.nr < want + spare) {
		note_least(e);
		want_rest(e);
		return false;
	}
	job_get_pages(job, &e->free, want);
	note_least(e);
	return true;
}

/* A store was closed, or keeps less: free the pages beyond what is wanted. */
static void free_unwanted(struct cow_engine *e)
{
	struct cow_pages unwanted;
	long nr;

	if (READ_ONCE(e->nr_pages) <= READ_ONCE(e->nr_wanted))
		return;
	take_given(e);
	spin_lock_irq(&e->queue_lock);
	nr = clamp_t(long, e->nr_pages - e->nr_wanted, 0, e->free.nr);
	if (nr > kib_to_pages(ENGINE_STEP_KIB)) {
		/* Copies do not wait for all of it. */
		nr = kib_to_pages(ENGINE_STEP_KIB);
		e->again = true;
	}
	e->nr_pages -= nr;
	spin_unlock_irq(&e->queue_lock);
	pages_cut(&e->free, nr, &unwanted);
	pages_free(&unwanted);
}

/* The page @index of a job; quick where indices ascend. */
static struct page *job_page(struct cow_job *job, unsigned int index)
{
	if (!job->pages.nr)
		return ZERO_PAGE(0);
	if (index < job->cursor_index) {
		job->cursor = job->pages.first;
		job->cursor_index = 0;
	}
	for (; job->cursor_index < index; job->cursor_index++)
		job->cursor = page_next(job->cursor);
	return job->cursor;
}

/* Is the caller the worker, in engine_work(), and not an interrupt on top of it? */
static bool engine_is_current(struct cow_engine *e)
{
	return current == e->worker->task && in_task() && e->worker->current_work == &e->work;
}

/*
 * The worker has something to do. Its own calls only make it go round once more. What it has to
 * find was put on a list before: pairs with atomic_xchg() in engine_work().
 */
static void engine_wake(struct cow_engine *e)
{
	if (engine_is_current(e))
		e->again = true;
	else if (atomic_xchg(&e->state, ENGINE_WANTED) == ENGINE_IDLE)
		kthread_queue_work(e->worker, &e->work);
}

/* ---------------------------------------------------------------------- bios */

/* Percent of time in force. */
static unsigned int copy_percent(const struct cow_engine *e)
{
	return READ_ONCE(e->hurry) || READ_ONCE(e->closing) ? 100 : READ_ONCE(e->throttle);
}

/* How many of those whose bios have ended may send another one soon? */
static unsigned int nr_expected(const struct cow_engine *e)
{
	lockdep_assert_held(&e->queue_lock);
	return time_before(jiffies, e->expected_until) ? e->nr_expected : 0;
}

/* The same where nothing has to seek. */
static bool are_gathered_quickly(const struct cow_engine *e)
{
	unsigned int others = e->nr_reading * GATHER_FACTOR_QUICK;

	/* Commits are saved where there is no time for them, not while the processor idles. */
	if (e->nr_going && e->nr_busy == GATHER_BUSY)
		others = (e->nr_reading + e->nr_going) * GATHER_FACTOR;
	return e->nr_read >= others || e->enough ||
	       (e->nr_read && !time_before(jiffies, e->gather_until));
}

/* Do copies take so much longer to be read than to be written? */
static bool store_is_quick(const struct cow_engine *e)
{
	unsigned int times = e->cached ? QUICK_STORE_CACHED : QUICK_STORE;

	return READ_ONCE(e->write_ns) * times < READ_ONCE(e->read_ns);
}

bool cow_engine_is_apart(const struct cow_engine *e)
{
	return READ_ONCE(e->apart) || store_is_quick(e);
}

/* A read and a write that both were under way have ended, @gap_ns one after the other. */
static void note_apart(struct cow_engine *e, s64 gap_ns)
{
	lockdep_assert_held(&e->queue_lock);
	if (gap_ns * APART_PART < (s64)e->gap_ns)
		e->tells_apart = min(e->tells_apart + APART_TELLS, APART_MOST);
	else if (e->tells_apart)
		e->tells_apart--;
	WRITE_ONCE(e->apart, e->tells_apart >= (e->apart ? APART_UNTIL : APART_FROM));
}

/* @job has been read or written. */
static void note_ended(struct cow_engine *e, const struct cow_job *job)
{
	s64 gap_ns = ktime_to_ns(ktime_sub(job->ended, e->last_ended));

	lockdep_assert_held(&e->queue_lock);
	/* Those of an array end at any time, and so do reads of what is not home. */
	if (!e->rotational || !e->one_head || !job->begun || !(job->written || job->in_order))
		return;
	/* They may come to the lock in another order. */
	if (gap_ns < 0)
		return;
	if (ktime_before(job->begun, e->last_ended)) {
		if (job->written != e->last_written)
			note_apart(e, gap_ns);
		else if (!job->written)
			e->gap_ns += div_s64(min_t(s64, gap_ns, GAP_MOST_NS) - (s64)e->gap_ns, 8);
	}
	e->last_ended = job->ended;
	e->last_written = job->written;
}

/* Is it time to write the gathered copies? Asked whenever one of the counts changes. */
static bool are_gathered(struct cow_engine *e)
{
	lockdep_assert_held(&e->queue_lock);
	if (READ_ONCE(e->closing))
		return true;
	if (!e->rotational)
		return are_gathered_quickly(e);
	if (store_is_quick(e) || !time_before(jiffies, e->gather_until))
		return true;
	/* The time that they wait counts as copying. */
	if (copy_percent(e) < 100)
		return e->nr_read >= e->nr_reading * GATHER_FACTOR_THROTTLED;
	/* Those that are held back are read first. */
	return !e->held && e->nr_read >= (e->nr_reading + e->nr_going + nr_expected(e)) *
					 (e->cached ? GATHER_FACTOR_CACHED : GATHER_FACTOR);
}

/*
 * A disk whose cache is full takes turns while it has something to read: it reads one thing, and
 * writes one from the cache. With nothing to read it goes through the cache in order. So copies are
 * not read before the writes of home of those before them have ended.
 */
static bool holds_back(struct cow_engine *e)
{
	const struct cow_job *next = list_first_entry_or_null(&e->waiting, struct cow_job, node);

	lockdep_assert_held(&e->queue_lock);
	return e->cached && e->nr_going && next && next->patient && copy_percent(e) >= 100 &&
	       !READ_ONCE(e->closing) && time_before(jiffies, e->hold_until);
}

/* The copy that was begun first, of those that go on in order. */
static struct cow_job *first_begun(struct cow_engine *e)
{
	lockdep_assert_held(&e->queue_lock);
	return list_first_entry_or_null(&e->order, struct cow_job, order);
}

/*
 * May it go on before those begun earlier? Writes to a disk of their own seek little. Waiting for
 * one another spares them a few seeks, and costs a large copy the time in which others are read.
 */
static bool may_pass(const struct cow_engine *e, const struct cow_job *job)
{
	return cow_engine_is_apart(e) && !e->cached && job->nr_sectors > COW_SMALL_SECTORS;
}

static bool is_ordered(const struct cow_job *job)
{
	return !list_empty(&job->order);
}

static void order_count(struct cow_jobs *jobs, const struct cow_job *job, int sign)
{
	WRITE_ONCE(jobs->nr, jobs->nr + sign);
	jobs->sectors += sign * (s64)job->nr_sectors;
}

/* So many that are as large as that? */
static bool are_many(const struct cow_jobs *jobs, unsigned int nr, sector_t sectors)
{
	return jobs->nr >= nr && jobs->sectors >= sectors;
}

/* @job is being read. */
static void order_begin(struct cow_engine *e, struct cow_job *job)
{
	lockdep_assert_held(&e->queue_lock);
	if (!e->one_head || !job->in_order || job->speculative)
		return;
	if (list_empty(&e->order))
		e->order_until = jiffies + ORDER_MOST;
	list_add_tail(&job->order, &e->order);
	order_count(&e->unread, job, 1);
}

/* Some wait for the first one, or are not begun: a timer has it passed over in the end. */
static void watch_order(struct cow_engine *e)
{
	const struct cow_job *first = first_begun(e);

	if ((e->early.nr || e->nr_passed) && !first->was_read &&
	    !timer_pending(&e->gathered.timer))
		kthread_queue_delayed_work(e->worker, &e->gathered,
					   max_t(long, e->order_until - jiffies, 0));
}

/* @job waits for no other any more, and none for it. */
static void order_end(struct cow_engine *e, struct cow_job *job)
{
	lockdep_assert_held(&e->queue_lock);
	if (!is_ordered(job))
		return;
	if (job == first_begun(e)) {
		e->order_until = jiffies + ORDER_MOST;
		e->nr_passed = 0;
	}
	list_del_init(&job->order);
	order_count(job->was_read ? &e->early : &e->unread, job, -1);
	watch_order(e);
}

/*
 * Has the disk left the first one behind, for the sake of so many others, or could it do so for
 * those that it has?
 */
static bool is_overtaken(struct cow_engine *e)
{
	if (are_many(&e->unread, ORDER_READING, ORDER_READING_SECTORS))
		return true;
	return (are_many(&e->early, ORDER_EARLY, 0) || e->nr_passed >= ORDER_PASSED ||
		are_many(&e->early, ORDER_LARGE, ORDER_LARGE_SECTORS)) &&
	       !first_begun(e)->was_read;
}

/* Is what waits next not read from the disk that has left one behind? */
static bool goes_elsewhere(struct cow_engine *e)
{
	const struct cow_job *next = list_first_entry_or_null(&e->waiting, struct cow_job, node);

	lockdep_assert_held(&e->queue_lock);
	return next && !next->in_order;
}

/* It goes on at once, but not many before the first one. */
static void pass(struct cow_engine *e, struct cow_job *job)
{
	lockdep_assert_held(&e->queue_lock);
	if (job != first_begun(e))
		e->nr_passed++;
	order_end(e, job);
}

/* It goes on when those before it have. */
static void note_early(struct cow_engine *e, struct cow_job *job)
{
	lockdep_assert_held(&e->queue_lock);
	job->was_read = true;
	order_count(&e->unread, job, -1);
	order_count(&e->early, job, 1);
	watch_order(e);
}

/* A patient job has been read. */
static void gather(struct cow_engine *e, struct cow_job *job)
{
	unsigned long most = e->rotational ? GATHER_MOST : GATHER_MOST_QUICK;
	bool idle = is_idle_task(current);

	lockdep_assert_held(&e->queue_lock);
	if (!is_ordered(job))
		list_add_tail(&job->node, &e->patient);
	e->nr_reading--;
	if (!e->nr_read)
		e->gather_until = jiffies + most;
	e->nr_read++;
	/* A task that ends the bios of its device says nothing of what else there is to do. */
	e->nr_busy = idle || in_task() ? 0 : min(e->nr_busy + 1, GATHER_BUSY);
	/* What waits for nothing but company need not do so while the processor is idle. */
	if (job->eager && idle)
		e->enough = true;
	/*
	 * Whether they are gathered is asked again later. A timer that is pending already has it
	 * look in time, and so has one that has just ended: both take the lock.
	 */
	if (e->nr_read == 1 && !timer_pending(&e->gathered.timer))
		kthread_queue_delayed_work(e->worker, &e->gathered, most);
}

/* @job was to be read by a task that would have had to wait: it is the first in the queue now. */
static void queue_refused(struct cow_engine *e, struct cow_job *job)
{
	lockdep_assert_held(&e->queue_lock);
	job->here = false;
	job->refused = false;
	job->queued = true;
	e->nr_reading -= job->patient;
	pages_join(&e->given, &job->pages);
	list_add(&job->node, &e->waiting);
}

/* One of the job's bios has ended, or issuing them has: was it the last? */
static bool job_is_idle(struct cow_job *job)
{
	if (!atomic_dec_and_test(&job->ios))
		return false;
	if (job->engine->rotational)
		job->ended = ktime_get();
	return true;
}

/*
 * Does a bio come first? Copies of a transient store are complete in memory, and with a throttle
 * the time would count as copying.
 */
static bool goes_aside(const struct cow_engine *e, const struct cow_job *job)
{
	return e->rotational && job->speculative && job->in_order && !job->eager &&
	       copy_percent(e) >= 100;
}

static bool may_aside_go(struct cow_engine *e)
{
	lockdep_assert_held(&e->queue_lock);
	return READ_ONCE(e->closing) || !time_before(jiffies, e->aside_until) ||
	       (!e->nr_homes && !e->ops->is_waited_for(e->context));
}

static void put_aside(struct cow_engine *e, struct cow_job *job)
{
	lockdep_assert_held(&e->queue_lock);
	/* Those that are gathered do not wait for it. */
	e->nr_reading -= job->patient;
	job->patient = false;
	job->aside = true;
	if (list_empty(&e->aside)) {
		e->aside_until = jiffies + ASIDE_MOST;
		kthread_mod_delayed_work(e->worker, &e->aside_over, ASIDE_MOST);
	}
	list_add_tail(&job->node, &e->aside);
}

/* Has the worker to look at jobs that wait, now that one of the counts has changed? */
static bool can_go_on(struct cow_engine *e)
{
	lockdep_assert_held(&e->queue_lock);
	return (e->nr_read && are_gathered(e)) || (e->held && !e->nr_going) ||
	       (!list_empty(&e->aside) && may_aside_go(e));
}

/* Returns whether there is anything to do now. */
static bool job_was_read(struct cow_engine *e, struct cow_job *job)
{
	if (goes_aside(e, job)) {
		put_aside(e, job);
		return can_go_on(e);
	}
	if (is_ordered(job) && may_pass(e, job))
		pass(e, job);
	if (is_ordered(job))
		note_early(e, job);
	else if (!job->patient)
		list_add_tail(&job->node, &e->read);
	if (job->patient)
		gather(e, job);
	return !job->patient || are_gathered(e) || (e->overtaken && !is_overtaken(e));
}

static void job_io_ended(struct cow_job *job)
{
	struct cow_engine *e = job->engine;
	unsigned long flags;
	bool wake = true;

	if (!job_is_idle(job))
		return;
	/* Inside of its submit_bio(): the worker is here already, and finds it without the lock. */
	if (job->written && engine_is_current(e)) {
		list_add_tail(&job->node, &e->ended);
		e->again = true;
		return;
	}
	/* Keeps the engine: once the job is on a list, all users of the engine may go. */
	rcu_read_lock();
	spin_lock_irqsave(&e->queue_lock, flags);
	note_ended(e, job);
	if (job->written)
		list_add_tail(&job->node, &e->written);
	else if (job->refused)
		queue_refused(e, job);
	else
		wake = job_was_read(e, job);
	spin_unlock_irqrestore(&e->queue_lock, flags);
	if (wake)
		engine_wake(e);
	rcu_read_unlock();
}

/* A write completes: in the context of its submitter, the worker? */
static void note_at_once(struct cow_engine *e)
{
	bool at_once = engine_is_current(e);

	if (READ_ONCE(e->at_once) != at_once)
		WRITE_ONCE(e->at_once, at_once);
}

/*
 * Has the device refused a read because it was not to wait? Drivers tell that by any error, and
 * the worker's read, which may wait, finds out what is really bad.
 */
static bool is_refused(struct cow_job *job, blk_status_t status)
{
	if (!job->here)
		return false;
	if (status == BLK_STS_NOTSUPP)
		WRITE_ONCE(job->engine->always_waits, true);
	return status != BLK_STS_OK;
}

/* @bio, or the batch that it was part of, has ended with @status. */
static void heed_flush(struct cow_engine *e, const struct bio *bio, blk_status_t status)
{
	if (unlikely(status) && op_is_flush(bio->bi_opf))
		e->ops->flush_failed(e->context, container_of(bio, struct cow_io, bio)->disk,
				     bio->bi_opf, status);
}

static void cow_io_endio(struct bio *bio)
{
	struct cow_io *io = container_of(bio, struct cow_io, bio);
	struct cow_job *job = io->job;

	heed_flush(job->engine, bio, bio->bi_status);
	if (is_refused(job, bio->bi_status))
		job->refused = true;
	else if (bio->bi_status)
		*io->status = bio->bi_status;
	if (op_is_write(bio_op(bio)))
		note_at_once(job->engine);
	if (io == &job->io)
		job->io_busy = false;
	else
		bio_put(bio);
	job_io_ended(job);
}

/* A bio of a batch has ended with it. Those of one batch are all embedded in their jobs. */
static void batched_ended(struct bio *bio, struct list_head *written)
{
	struct cow_job *job = container_of(bio, struct cow_io, bio)->job;

	job->io_busy = false;
	if (job_is_idle(job))
		list_add_tail(&job->node, written);
}

/* The bios of a batch end together; after an error each is written alone. */
static void batch_endio(struct bio *batch)
{
	struct bio *bio = batch->bi_private, *next;
	struct cow_engine *e = container_of(bio, struct cow_io, bio)->job->engine;
	struct bio_list failed = BIO_EMPTY_LIST;
	bool good = !batch->bi_status;
	LIST_HEAD(written);
	unsigned long flags;

	heed_flush(e, bio, batch->bi_status);
	bio_put(batch);
	if (good)
		note_at_once(e);
	for (; bio; bio = next) {
		next = bio->bi_next;
		bio->bi_next = NULL;
		if (good)
			batched_ended(bio, &written);
		else
			bio_list_add(&failed, bio);
	}
	if (good && list_empty(&written))
		return;
	/* Keeps the engine: with the end of its last job all its users may go. */
	rcu_read_lock();
	spin_lock_irqsave(&e->queue_lock, flags);
	list_splice_tail(&written, &e->written);
	bio_list_merge(&e->alone, &failed);
	spin_unlock_irqrestore(&e->queue_lock, flags);
	engine_wake(e);
	rcu_read_unlock();
}

/* By device, flags and place. */
static int compare_writes(const struct bio *x, const struct bio *y)
{
	int order = cow_bio_cmp_device(x, y);

	if (order)
		return order;
	if (x->bi_opf != y->bi_opf)
		return (__force u32)x->bi_opf < (__force u32)y->bi_opf ? -1 : 1;
	if (x->bi_iter.bi_sector == y->bi_iter.bi_sector)
		return 0;
	return x->bi_iter.bi_sector < y->bi_iter.bi_sector ? -1 : 1;
}

/*
 * Only bios that are embedded in their jobs go together; each has one page. A batch that fails
 * gives its bios back to the worker, which may be waiting for one of the pool just then.
 */
static bool may_share(const struct bio *bio)
{
	const struct cow_io *io = container_of(bio, struct cow_io, bio);

	return io == &io->job->io;
}

/*
 * See job_own_bio(). For cgroups it is the kernel's, whichever task sends it: others than that task
 * wait for it.
 */
static void submit_job_bio(struct bio *bio)
{
	if (may_share(bio))
		bio_associate_blkg_from_css(bio, NULL);
	submit_bio_noacct(bio);
}

static void submit_write(struct cow_engine *e, struct bio *bio)
{
	if (e->rotational)
		container_of(bio, struct cow_io, bio)->job->begun = ktime_get();
	submit_job_bio(bio);
}

/* How many of @nr sorted bios, from the first on, can go in one? */
static unsigned int batch_size(struct bio **bios, unsigned int nr)
{
	unsigned int i;

	for (i = 1; i < nr; i++)
		if (!may_share(bios[i - 1]) || !may_share(bios[i]) ||
		    cow_bio_cmp_device(bios[i], bios[0]) ||
		    bios[i]->bi_opf != bios[0]->bi_opf ||
		    bios[i]->bi_iter.bi_sector != bio_end_sector(bios[i - 1]))
			break;
	return i;
}

/*
 * Copies that lie next to each other in the store are written with one bio: the layers
 * below cost as much for a small bio as for a large one.
 */
static bool submit_batch(struct cow_engine *e, struct bio **bios, unsigned int nr)
{
	ktime_t now = e->rotational ? ktime_get() : 0;
	struct bio *batch;
	unsigned int i;

	batch = cow_bio_alloc_like(bios[0], nr, GFP_NOWAIT | __GFP_NOWARN, &e->bios);
	if (!batch)
		return false;
	batch->bi_iter.bi_sector = bios[0]->bi_iter.bi_sector;
	batch->bi_end_io = batch_endio;
	batch->bi_private = bios[0];
	for (i = 0; i < nr; i++) {
		container_of(bios[i], struct cow_io, bio)->job->begun = now;
		__bio_add_page(batch, bios[i]->bi_io_vec->bv_page, bios[i]->bi_io_vec->bv_len,
			       bios[i]->bi_io_vec->bv_offset);
		bios[i]->bi_next = i + 1 < nr ? bios[i + 1] : NULL;
	}
	submit_bio_noacct(batch);
	return true;
}

static void submit_sorted(struct cow_engine *e, struct bio **bios, unsigned int nr)
{
	unsigned int size, i;

	for (; nr; nr -= size, bios += size) {
		size = batch_size(bios, nr);
		if (size > 1 && submit_batch(e, bios, size))
			continue;
		for (i = 0; i < size; i++)
			submit_write(e, bios[i]);
	}
}

static void submit_alone(struct cow_engine *e)
{
	struct bio_list bios;
	struct bio *bio;

	spin_lock_irq(&e->queue_lock);
	bios = e->alone;
	bio_list_init(&e->alone);
	spin_unlock_irq(&e->queue_lock);
	while ((bio = bio_list_pop(&bios))) {
		struct cow_job *job = container_of(bio, struct cow_io, bio)->job;

		if (job->ops->again)
			job->ops->again(job);
		submit_write(e, bio);
	}
}

/*
 * Places are given out in the order in which copies are asked for, so most of them are in order:
 * then this is the quickest way. There are only some.
 */
static void sort_writes(struct bio **bios, unsigned int nr)
{
	unsigned int i, at;

	for (i = 1; i < nr; i++) {
		struct bio *bio = bios[i];

		for (at = i; at && compare_writes(bios[at - 1], bio) > 0; at--)
			bios[at] = bios[at - 1];
		bios[at] = bio;
	}
}

static void submit_writes(struct cow_engine *e)
{
	unsigned int nr;

	if (!bio_list_empty(&e->alone))
		submit_alone(e);
	while (!bio_list_empty(&e->writes)) {
		for (nr = 0; nr < ENGINE_SORTED && !bio_list_empty(&e->writes); nr++)
			e->sorted[nr] = bio_list_pop(&e->writes);
		sort_writes(e->sorted, nr);
		submit_sorted(e, e->sorted, nr);
	}
}

/* The job's own bio, which is free and has room for one page. */
static struct bio *job_own_bio(struct cow_job *job, struct block_device *bdev, blk_opf_t opf)
{
	job->io_busy = true;
	/* Without a reference: only bio_endio() drops it, which a batch gets alone. */
	bio_init(&job->io.bio, NULL, &job->vec, 1, opf);
	cow_bio_note_dev(&job->io.bio, bdev);
	return &job->io.bio;
}

/*
 * One of the pool: this never fails, but bios that wait to be submitted may hold all of the pool,
 * so they go first.
 */
static struct bio *job_pool_bio(struct cow_job *job, struct block_device *bdev,
				unsigned int vecs, blk_opf_t opf)
{
	struct cow_engine *e = job->engine;
	struct bio *bio;

	bio = bio_alloc_bioset(bdev, vecs, opf, GFP_NOWAIT | __GFP_NOWARN, &e->bios);
	if (bio)
		return bio;
	submit_writes(e);
	return bio_alloc_bioset(bdev, vecs, opf, GFP_NOIO, &e->bios);
}

/* @bio is complete. It is read now, or written by the end of this round. */
static void job_send(struct cow_job *job, struct bio *bio, struct block_device *bdev,
		     sector_t sector, blk_status_t *status)
{
	struct cow_io *io = container_of(bio, struct cow_io, bio);

	io->job = job;
	io->status = status;
	io->disk = bdev->bd_disk;
	bio->bi_iter.bi_sector = sector;
	bio->bi_end_io = cow_io_endio;
	atomic_inc(&job->ios);
	if (op_is_write(bio_op(bio)))
		bio_list_add(&job->engine->writes, bio);
	else
		submit_job_bio(bio);
}

/* Append up to @nr_sectors from @offset on, as many as @bio has room for. Returns how many. */
static unsigned int job_fill_bio(struct cow_job *job, struct bio *bio, unsigned int offset,
				 unsigned int nr_sectors)
{
	unsigned int part, done = 0;

	for (; done < nr_sectors && bio->bi_vcnt < bio->bi_max_vecs; done += part) {
		unsigned int within = (offset + done) % PAGE_SECTORS;

		part = min_t(unsigned int, nr_sectors - done, PAGE_SECTORS - within);
		__bio_add_page(bio, job_page(job, (offset + done) / PAGE_SECTORS),
			       part << SECTOR_SHIFT, within << SECTOR_SHIFT);
	}
	return done;
}

/* Read part of a job now, or write part of it by the end of this round. */
static void job_submit(struct cow_job *job, blk_opf_t opf, unsigned int offset,
		       unsigned int nr_sectors, struct block_device *bdev,
		       sector_t sector, blk_status_t *status)
{
	unsigned int vecs = cow_job_vecs(offset, nr_sectors), part;
	struct bio *bio;

	for (; nr_sectors; nr_sectors -= part, offset += part, sector += part) {
		if (vecs == 1 && !job->io_busy)
			bio = job_own_bio(job, bdev, opf);
		else
			bio = job_pool_bio(job, bdev, min(vecs, BIO_MAX_VECS), opf);
		part = job_fill_bio(job, bio, offset, nr_sectors);
		vecs -= bio->bi_vcnt;
		job_send(job, bio, bdev, sector, status);
	}
}

void cow_job_write(struct cow_job *job, unsigned int offset_sectors,
		   unsigned int nr_sectors, struct block_device *bdev,
		   sector_t sector, blk_opf_t flags, blk_status_t *status)
{
	job->engine->stats.written_sectors += nr_sectors;
	job_submit(job, REQ_OP_WRITE | flags, offset_sectors, nr_sectors, bdev, sector,
		   status);
}

/* -------------------------------------------------------- bios of the owner's */

void cow_job_hold(struct cow_job *job)
{
	if (job->engine->rotational)
		job->begun = ktime_get();
	atomic_inc(&job->ios);
}

unsigned int cow_job_vecs(unsigned int offset, unsigned int nr_sectors)
{
	return sectors_to_pages(offset % PAGE_SECTORS + nr_sectors);
}

void cow_job_add_to_bio(struct cow_job *job, unsigned int offset, unsigned int nr_sectors,
			struct bio *bio)
{
	job->engine->stats.written_sectors += nr_sectors;
	WARN_ON_ONCE(job_fill_bio(job, bio, offset, nr_sectors) != nr_sectors);
}

void cow_job_let_go(struct cow_job *job)
{
	job_io_ended(job);
}

/* ---------------------------------------------------------- the data of a job */

/* The data at @offset_sectors, up to the end of its page; *@part is how much that is. */
static void *job_data(struct cow_job *job, unsigned int offset_sectors,
		      unsigned int nr_sectors, unsigned int *part)
{
	unsigned int within = offset_sectors % PAGE_SECTORS;

	*part = min_t(unsigned int, nr_sectors, PAGE_SECTORS - within);
	return page_address(job_page(job, offset_sectors / PAGE_SECTORS)) +
	       (within << SECTOR_SHIFT);
}

u32 cow_job_crc(struct cow_job *job, unsigned int offset_sectors,
		unsigned int nr_sectors, u32 seed)
{
	unsigned int part;

	for (; nr_sectors; nr_sectors -= part, offset_sectors += part) {
		void *data = job_data(job, offset_sectors, nr_sectors, &part);

		seed = crc32c(seed, data, part << SECTOR_SHIFT);
	}
	return seed;
}

/* @offset is in bytes: programs may write from pieces that are no whole sectors. */
static void job_copy_piece(struct cow_job *job, unsigned int offset, const struct bio_vec *bv,
			   bool to_bio)
{
	unsigned int at, part;

	for (at = 0; at < bv->bv_len; at += part, offset += part) {
		unsigned int within = offset % PAGE_SIZE;
		void *data = page_address(job_page(job, offset / PAGE_SIZE)) + within;

		part = min_t(unsigned int, bv->bv_len - at, PAGE_SIZE - within);
		if (to_bio)
			memcpy_to_page(bv->bv_page, bv->bv_offset + at, data, part);
		else
			memcpy_from_page(data, bv->bv_page, bv->bv_offset + at, part);
	}
}

/* The two have the same sectors, in the one direction or the other. */
static void job_copy_bio(struct cow_job *job, unsigned int offset_sectors, struct bio *bio,
			 bool to_bio)
{
	unsigned int offset = offset_sectors << SECTOR_SHIFT;
	struct bvec_iter iter;
	struct bio_vec bv;

	bio_for_each_segment(bv, bio, iter) {
		job_copy_piece(job, offset, &bv, to_bio);
		offset += bv.bv_len;
	}
}

void cow_job_copy_to_bio(struct cow_job *job, unsigned int offset_sectors,
			 struct bio *bio)
{
	job_copy_bio(job, offset_sectors, bio, true);
}

void cow_job_copy_from_bio(struct cow_job *job, unsigned int offset_sectors, struct bio *bio)
{
	job_copy_bio(job, offset_sectors, bio, false);
}

static void job_zero_pad(struct cow_job *job)
{
	unsigned int offset = job->nr_sectors, left = job->pad_sectors, part;

	for (; job->pages.nr && left; left -= part, offset += part) {
		void *data = job_data(job, offset, left, &part);

		memset(data, 0, part << SECTOR_SHIFT);
	}
}

bool cow_job_is_zero(struct cow_job *job, unsigned int offset_sectors,
		     unsigned int nr_sectors)
{
	unsigned int part;

	for (; nr_sectors; nr_sectors -= part, offset_sectors += part) {
		void *data = job_data(job, offset_sectors, nr_sectors, &part);

		/* Most data is not, from its first word on. */
		if (*(const u64 *)data || memchr_inv(data, 0, part << SECTOR_SHIFT))
			return false;
	}
	return true;
}

/* ------------------------------------------------------------------ throttle */

/* May a job start now? If not, the end of the running jobs or of the rest looks again. */
static bool may_start(struct cow_engine *e)
{
	ktime_t now;

	if (copy_percent(e) >= 100)
		return true;
	now = ktime_get();
	if (e->nr_active)
		return ktime_sub(now, e->slice_start) < THROTTLE_SLICE_NS;
	if (ktime_before(now, e->pause_until)) {
		s64 left = ktime_to_us(ktime_sub(e->pause_until, now));

		kthread_mod_delayed_work(e->worker, &e->unpause, usecs_to_jiffies(left) + 1);
		return false;
	}
	return true;
}

static void note_busy(struct cow_engine *e)
{
	ktime_t now = ktime_get();

	e->busy_ns += ktime_to_ns(ktime_sub(now, e->noted)) * e->nr_active;
	e->noted = now;
}

static void job_started(struct cow_engine *e, const struct cow_job *job)
{
	if (job->own_data)
		return;
	if (!e->nr_active) {
		e->slice_share = copy_percent(e);
		/* Without a limit no time is measured. */
		e->slice_start = e->slice_share < 100 ? ktime_get() : 0;
		e->noted = e->slice_start;
		e->busy_ns = 0;
		e->nr_most = 0;
	} else if (e->slice_share < 100) {
		note_busy(e);
	}
	e->nr_active++;
	e->nr_most = max(e->nr_most, e->nr_active);
}

/*
 * Jobs with data of their own are no copies, so neither of these counts them.
 *
 * At most copy_percent() of any stretch of time is spent copying: after each slice of copying
 * the engine rests in proportion. At the end of a slice, when only some of its jobs are left,
 * time counts in proportion to them: nr_active of nr_most. A device may have been away meanwhile,
 * for minutes: writes wait for copies, so no rest is longer than REST_MAX_NS.
 */
static void job_stopped(struct cow_engine *e, const struct cow_job *job)
{
	u64 busy_ns, rest_ns;

	if (job->own_data)
		return;
	if (e->slice_share < 100)
		note_busy(e);
	/* A share that has changed meanwhile counts from the next slice on. */
	if (--e->nr_active || e->slice_share >= 100 || copy_percent(e) != e->slice_share)
		return;
	busy_ns = div_u64(e->busy_ns, e->nr_most);
	rest_ns = div_u64(busy_ns * (100 - e->slice_share), e->slice_share);
	e->pause_until = ktime_add_ns(e->noted, min_t(u64, rest_ns, REST_MAX_NS));
	e->stats.throttled++;
}

static void engine_unpause(struct kthread_work *work)
{
	engine_wake(container_of(work, struct cow_engine, unpause.work));
}

static void engine_wake_later(struct kthread_work *work)
{
	engine_wake(container_of(work, struct cow_engine, wake_later.work));
}

static void engine_aside_over(struct kthread_work *work)
{
	engine_wake(container_of(work, struct cow_engine, aside_over.work));
}

static void engine_gathered(struct kthread_work *work)
{
	struct cow_engine *e = container_of(work, struct cow_engine, gathered.work);
	unsigned long now = jiffies;

	spin_lock_irq(&e->queue_lock);
	if (e->nr_read && time_before(now, e->gather_until))
		kthread_queue_delayed_work(e->worker, &e->gathered, e->gather_until - now);
	else if ((e->early.nr || e->nr_passed) && time_before(now, e->order_until))
		kthread_queue_delayed_work(e->worker, &e->gathered, e->order_until - now);
	spin_unlock_irq(&e->queue_lock);
	engine_wake(e);
}

/* -------------------------------------------------------------------- worker */

/* The worker is woken after a job was put on a list, so it may look without the lock. */
static struct cow_job *pop_written(struct cow_engine *e)
{
	struct cow_job *job = list_first_entry_or_null(&e->ended, struct cow_job, node);

	if (job) {
		list_del(&job->node);
		return job;
	}
	if (list_empty_careful(&e->written))
		return NULL;
	spin_lock_irq(&e->queue_lock);
	job = list_first_entry_or_null(&e->written, struct cow_job, node);
	if (job)
		list_del(&job->node);
	spin_unlock_irq(&e->queue_lock);
	return job;
}

static void note_time(u64 *mean, const struct cow_job *job)
{
	s64 took = ktime_to_ns(ktime_sub(job->ended, job->begun));

	WRITE_ONCE(*mean, *mean + div_s64(took - (s64)*mean, 8));
}

static void job_finish(struct cow_engine *e, struct cow_job *job)
{
	if (!job->keep_pages) {
		pages_join(&e->free, &job->pages);
		if (job->begun)
			note_time(&e->write_ns, job);
	}
	job_stopped(e, job);
	job->ops->done(job);
}

static void finish_written(struct cow_engine *e)
{
	struct cow_job *job;

	while ((job = pop_written(e)))
		job_finish(e, job);
}

/* Do others wait for this one, and what follows from it? See are_gathered(). */
static bool is_counted(const struct cow_engine *e, const struct cow_job *job)
{
	return job->patient && (e->rotational || !job->eager);
}

/* The disk has not brought the first one for too long. */
static void pass_over_first(struct cow_engine *e)
{
	struct cow_job *first = first_begun(e);

	if (first && !first->was_read && (e->early.nr || e->nr_passed) &&
	    !time_before(jiffies, e->order_until))
		order_end(e, first);
}

/* The first one of those that go on in order, if it has been read; if @all, gathered or not. */
static struct cow_job *next_in_order(struct cow_engine *e, bool all)
{
	struct cow_job *job = first_begun(e);

	if (!job || !job->was_read || (job->patient && !all))
		return NULL;
	order_end(e, job);
	return job;
}

/* Is one of those that are gathered next? In order they wait for the first one: watch_order(). */
static bool has_next(struct cow_engine *e)
{
	const struct cow_job *first = first_begun(e);

	lockdep_assert_held(&e->queue_lock);
	return !list_empty(&e->patient) || (first && first->was_read);
}

static struct cow_job *pop_listed(struct list_head *list)
{
	struct cow_job *job = list_first_entry_or_null(list, struct cow_job, node);

	if (job)
		list_del(&job->node);
	return job;
}

static bool none_is_read(const struct cow_engine *e, bool all)
{
	return list_empty_careful(&e->read) && !READ_ONCE(e->early.nr) &&
	       list_empty_careful(&e->aside) && (!all || list_empty_careful(&e->patient));
}

static struct cow_job *pop_aside(struct cow_engine *e)
{
	struct cow_job *job;

	if (list_empty(&e->aside) || !may_aside_go(e))
		return NULL;
	job = pop_listed(&e->aside);
	job->aside = false;
	return job;
}

/* A job that has been read; if @all, also one of those that are gathered. */
static struct cow_job *pop_read(struct cow_engine *e, bool all)
{
	struct cow_job *job;

	if (none_is_read(e, all))
		return NULL;
	spin_lock_irq(&e->queue_lock);
	pass_over_first(e);
	job = pop_listed(&e->read) ?: next_in_order(e, all);
	if (!job && all)
		job = pop_listed(&e->patient);
	job = job ?: pop_aside(e);
	if (job) {
		e->nr_read -= job->patient;
		e->enough &= e->nr_read > 0;
		/* One that is read once more has been counted before. */
		if (is_counted(e, job) && !job->going) {
			job->going = true;
			if (!e->nr_going++)
				e->hold_until = jiffies + GATHER_MOST;
		}
		/* It may be resumed later, without having been read again. */
		job->patient = false;
	}
	spin_unlock_irq(&e->queue_lock);
	return job;
}

static void note_read(struct cow_engine *e, const struct cow_job *job)
{
	e->stats.jobs++;
	if (job->bdev)
		e->stats.read_sectors += job->nr_sectors;
	if (e->rotational && !job->own_data)
		note_time(&e->read_ns, job);
}

static void write_read(struct cow_engine *e)
{
	struct cow_job *job;
	bool all;

	if (none_is_read(e, true))
		return;
	spin_lock_irq(&e->queue_lock);
	all = are_gathered(e);
	spin_unlock_irq(&e->queue_lock);
	while ((job = pop_read(e, all))) {
		if (job->keep_pages || job->here)
			job_started(e, job);
		if (!job->keep_pages)
			note_read(e, job);
		job->here = false;
		job->keep_pages = false;
		job->begun = 0;
		job->written = true;
		atomic_set(&job->ios, 1);
		job_zero_pad(job);
		job->ops->ready(job);
		/* Without anything to write it has ended: no list, no further round. */
		if (job_is_idle(job))
			job_finish(e, job);
	}
}

/*
 * Where writes end inside submit_bio(), as on RAM disks, those of this round end in it, before the
 * hook commits or publishes what they were for: else all of that would take another round.
 */
static void finish_at_once(struct cow_engine *e)
{
	if (!READ_ONCE(e->at_once) || e->rotational)
		return;
	submit_writes(e);
	finish_written(e);
	/* Only what is to be written again has not been looked at, and what the hook will. */
	e->again = !list_empty_careful(&e->read);
}

static struct list_head *queue_of(struct cow_engine *e, const struct cow_job *job)
{
	if (job->own_data)
		return &e->writing;
	return job->speculative ? &e->later : &e->waiting;
}

/*
 * By age, so that the one that is next gets its pages, but for what is urgent. While the engine
 * rests, copies wait (!@may).
 */
static struct cow_job *next_waiting(struct cow_engine *e, bool may)
{
	struct cow_job *copy = list_first_entry_or_null(&e->waiting, struct cow_job, node);
	struct cow_job *write = list_first_entry_or_null(&e->writing, struct cow_job, node);

	lockdep_assert_held(&e->queue_lock);
	if (copy && copy->urgent)
		return copy;
	if (write && (!may || !copy || write->number < copy->number))
		return write;
	if (!may)
		return NULL;
	return copy ?: list_first_entry_or_null(&e->later, struct cow_job, node);
}

static bool nothing_waits(const struct cow_engine *e)
{
	return list_empty_careful(&e->waiting) && list_empty_careful(&e->writing) &&
	       list_empty_careful(&e->later);
}

/* The end of the last write of home looks again, or else a timer. */
static void hold_back(struct cow_engine *e)
{
	lockdep_assert_held(&e->queue_lock);
	if (!timer_pending(&e->gathered.timer) ||
	    time_after(e->gathered.timer.expires, e->hold_until))
		kthread_mod_delayed_work(e->worker, &e->gathered,
					 max_t(long, e->hold_until - jiffies, 0));
}

/* The next to be read. */
static struct cow_job *pop_waiting(struct cow_engine *e)
{
	struct cow_job *job;
	bool may;

	if (nothing_waits(e))
		return NULL;
	may = may_start(e);
	spin_lock_irq(&e->queue_lock);
	e->held = holds_back(e);
	if (e->held)
		hold_back(e);
	pass_over_first(e);
	e->overtaken = is_overtaken(e) && !goes_elsewhere(e);
	job = next_waiting(e, may && !e->held && !e->overtaken);
	if (job) {
		list_del(&job->node);
		order_begin(e, job);
		job->queued = false;
		e->nr_reading += job->patient;
		if (job->patient && e->nr_expected)
			e->nr_expected--;
	}
	spin_unlock_irq(&e->queue_lock);
	return job;
}

static void put_back(struct cow_engine *e, struct cow_job *job)
{
	e->stats.page_waits++;
	spin_lock_irq(&e->queue_lock);
	e->nr_reading -= job->patient;
	order_end(e, job);
	/* Jobs that wait for this one to be read hold the pages that it waits for. */
	if (has_next(e) && are_gathered(e))
		e->again = true;
	job->queued = true;
	if (READ_ONCE(requeue_at_tail))
		list_add_tail(&job->node, queue_of(e, job));
	else
		list_add(&job->node, queue_of(e, job));
	spin_unlock_irq(&e->queue_lock);
}

/*
 * @job lacks pages. Gathered jobs hold some: if no other is being read they wait no more. So do
 * those that were put aside.
 */
static void hurry_gathered(struct cow_engine *e, const struct cow_job *job)
{
	spin_lock_irq(&e->queue_lock);
	if (e->nr_reading == job->patient)
		e->gather_until = jiffies;
	if (!list_empty(&e->aside)) {
		e->aside_until = jiffies;
		e->again = true;
	}
	spin_unlock_irq(&e->queue_lock);
}

static void read_waiting(struct cow_engine *e)
{
	struct cow_job *job;

	while ((job = pop_waiting(e))) {
		if (!job_take_pages(e, job)) {
			hurry_gathered(e, job);
			put_back(e, job);
			break;
		}
		job_started(e, job);
		job->begun = e->rotational ? ktime_get() : 0;
		atomic_set(&job->ios, 1);
		if (job->bdev)
			job_submit(job, REQ_OP_READ, 0, job->nr_sectors, job->bdev,
				   job->sector, &job->read_status);
		job_io_ended(job);
	}
}

static void engine_round(struct cow_engine *e)
{
	struct blk_plug plug;

	blk_start_plug(&plug);
	finish_written(e);
	/* What this has put on lists comes later in the round. */
	e->again = false;
	write_read(e);
	finish_at_once(e);
	e->ops->hook(e->context);
	submit_writes(e);
	read_waiting(e);
	blk_finish_plug(&plug);
	free_unwanted(e);
	share_pages(e);
	cond_resched();
}

static void engine_work(struct kthread_work *work)
{
	struct cow_engine *e = container_of(work, struct cow_engine, work);
	unsigned int rounds = ENGINE_ROUNDS;

	do {
		e->again = false;
		/* Before the lists are looked at: pairs with atomic_xchg() in engine_wake(). */
		atomic_xchg(&e->state, ENGINE_RUNS);
		engine_round(e);
		if (!--rounds) {
			atomic_set(&e->state, ENGINE_WANTED);
			kthread_queue_work(e->worker, &e->work);
			return;
		}
	} while (e->again ||
		 atomic_cmpxchg(&e->state, ENGINE_RUNS, ENGINE_IDLE) != ENGINE_RUNS);
}

/* --------------------------------------------------------------- its callers */

/*
 * A copy that is complete in memory gains no seek by waiting: it ends at once, or with those that
 * are read while the processor is busy. But a disk with a cache does better with reads and writes
 * of home in turn. Others spare seeks, but for those to an array that takes writes sooner than it
 * reads: many heads empty its cache.
 */
static bool may_be_gathered(const struct cow_engine *e, const struct cow_job *job)
{
	if (!e->rotational)
		return true;
	if (job->eager)
		return e->cached && e->one_head;
	return e->one_head || READ_ONCE(e->write_ns) >= READ_ONCE(e->read_ns);
}

static void job_init(struct cow_engine *e, struct cow_job *job)
{
	job->engine = e;
	job->read_status = BLK_STS_OK;
	job->written = false;
	job->keep_pages = false;
	job->here = false;
	job->refused = false;
	job->io_busy = false;
	job->was_read = false;
	job->aside = false;
	INIT_LIST_HEAD(&job->order);
	job->patient &= may_be_gathered(e, job);
	job->pages.nr = 0;
	job->queued = true;
}

void cow_engine_submit(struct cow_engine *e, struct cow_job *job)
{
	unsigned long flags;

	job_init(e, job);
	spin_lock_irqsave(&e->queue_lock, flags);
	job->number = e->nr_submitted++;
	if (job->urgent)
		list_add(&job->node, &e->waiting);
	else
		list_add_tail(&job->node, queue_of(e, job));
	spin_unlock_irqrestore(&e->queue_lock, flags);
	engine_wake(e);
}

/*
 * Each write to a block device has a plug of its own, unless it is one of a batch: then what the
 * plug has comes before this, and more is to come. Callbacks are md's, whose devices may wait for
 * them.
 */
static bool plug_is_empty(const struct blk_plug *plug)
{
	return !plug || (!plug->rq_count && list_empty(&plug->cb_list));
}

/* Does the task send the read soon, and with no memory but what all have? */
static bool task_may_read(const struct cow_job *job)
{
	return in_task() && plug_is_empty(current->plug) && !(current->flags & PF_MEMALLOC) &&
	       job->bdev && job->nr_sectors + job->pad_sectors <= PAGE_SECTORS;
}

/* May @job be read without the worker? It must not overtake others, nor take their pages. */
static bool is_next(const struct cow_engine *e, const struct cow_job *job)
{
	lockdep_assert_held(&e->queue_lock);
	/* On a disk that rotates, and with a throttle, the worker decides when. */
	return list_empty(&e->waiting) && list_empty(&e->writing) && e->given.nr &&
	       !job->speculative && !e->rotational &&
	       copy_percent(e) >= 100 && !READ_ONCE(e->always_waits);
}

bool cow_engine_submit_here(struct cow_engine *e, struct cow_job *job)
{
	unsigned long flags;
	bool here;

	if (!task_may_read(job)) {
		cow_engine_submit(e, job);
		return false;
	}
	job_init(e, job);
	spin_lock_irqsave(&e->queue_lock, flags);
	job->number = e->nr_submitted++;
	here = is_next(e, job);
	if (here) {
		job->here = true;
		job->queued = false;
		e->nr_reading += job->patient;
		job_get_pages(job, &e->given, 1);
	} else {
		list_add_tail(&job->node, queue_of(e, job));
	}
	spin_unlock_irqrestore(&e->queue_lock, flags);
	/* If it was queued it may be over by now. */
	if (!here)
		engine_wake(e);
	return here;
}

void cow_engine_read_here(struct cow_job *job)
{
	job->begun = 0;
	atomic_set(&job->ios, 1);
	job_submit(job, REQ_OP_READ | REQ_NOWAIT, 0, job->nr_sectors, job->bdev, job->sector,
		   &job->read_status);
	job_io_ended(job);
}

/*
 * The worker looks at ->waiting and ->later one after the other, without the lock. It may miss
 * a job that is moved meanwhile, so it has to look again.
 */
void cow_engine_need(struct cow_engine *e, struct cow_job *job)
{
	unsigned long flags;
	bool moved;

	if (!READ_ONCE(job->speculative))
		return;
	spin_lock_irqsave(&e->queue_lock, flags);
	WRITE_ONCE(job->speculative, false);
	moved = job->queued || job->aside;
	if (moved)
		list_move_tail(&job->node, job->aside ? &e->read : &e->waiting);
	job->aside = false;
	spin_unlock_irqrestore(&e->queue_lock, flags);
	if (moved)
		engine_wake(e);
}

void cow_engine_resume(struct cow_engine *e, struct list_head *jobs)
{
	unsigned long flags;

	spin_lock_irqsave(&e->queue_lock, flags);
	list_splice_tail_init(jobs, &e->read);
	spin_unlock_irqrestore(&e->queue_lock, flags);
	engine_wake(e);
}

bool cow_engine_going(struct cow_engine *e, unsigned int nr_sectors, bool gathered)
{
	bool small = e->rotational && nr_sectors <= SMALL_WRITE_SECTORS;
	unsigned long flags;

	if (!gathered && !small)
		return false;
	spin_lock_irqsave(&e->queue_lock, flags);
	e->nr_going += gathered;
	e->nr_homes++;
	spin_unlock_irqrestore(&e->queue_lock, flags);
	return true;
}

/* A writer may send another bio soon. */
static void expect_one(struct cow_engine *e)
{
	lockdep_assert_held(&e->queue_lock);
	e->nr_expected = nr_expected(e) + 1;
	e->expected_until = jiffies + COMES_BACK;
	kthread_mod_delayed_work(e->worker, &e->gathered, COMES_BACK);
}

void cow_engine_gone(struct cow_engine *e, bool gathered, bool ended)
{
	unsigned long flags;
	bool wake;

	spin_lock_irqsave(&e->queue_lock, flags);
	e->nr_going -= gathered;
	e->nr_homes--;
	if (ended && gathered && e->rotational)
		expect_one(e);
	wake = can_go_on(e);
	spin_unlock_irqrestore(&e->queue_lock, flags);
	if (wake)
		engine_wake(e);
}

void cow_engine_let_go(struct cow_engine *e)
{
	unsigned long flags;
	bool wake;

	spin_lock_irqsave(&e->queue_lock, flags);
	e->nr_going--;
	wake = can_go_on(e);
	spin_unlock_irqrestore(&e->queue_lock, flags);
	if (wake)
		engine_wake(e);
}

void cow_engine_kick_aside(struct cow_engine *e)
{
	if (!list_empty_careful(&e->aside))
		engine_wake(e);
}

void cow_engine_drop(struct cow_engine *e, struct cow_job *job)
{
	unsigned long flags;

	spin_lock_irqsave(&e->queue_lock, flags);
	pages_join(&e->given, &job->pages);
	spin_unlock_irqrestore(&e->queue_lock, flags);
	engine_wake(e);
}

void cow_engine_kick(struct cow_engine *e)
{
	engine_wake(e);
}

void cow_engine_kick_later(struct cow_engine *e, unsigned long delay)
{
	kthread_mod_delayed_work(e->worker, &e->wake_later, delay);
}

bool cow_engine_is_current(struct cow_engine *e)
{
	return engine_is_current(e);
}

void cow_engine_flush(struct cow_engine *e)
{
	kthread_flush_work(&e->work);
}

/* Pages of the largest job, once there is room for it. */
static unsigned int nr_largest(const struct cow_engine *e)
{
	return max(kib_to_pages(ENGINE_JOB_KIB), READ_ONCE(e->nr_first));
}

unsigned int cow_engine_job_sectors(struct cow_engine *e)
{
	unsigned int nr = READ_ONCE(e->nr_base);
	unsigned int half = min(nr / 2, nr_largest(e));

	/* Half, so that one job can be read while another is written; more until the rest comes. */
	if (nr < READ_ONCE(e->nr_budget))
		half = max(half, READ_ONCE(e->nr_first));
	return half * PAGE_SECTORS;
}

bool cow_engine_fits(struct cow_engine *e, sector_t sectors)
{
	if (sectors <= cow_engine_job_sectors(e))
		return true;
	if (sectors <= nr_largest(e) * PAGE_SECTORS)
		want_rest(e);
	return false;
}

/* Want @more pages, or fewer: then the worker frees them as they come back. */
static int engine_want(struct cow_engine *e, long more, gfp_t gfp)
{
	struct cow_pages fresh = {};
	long missing;
	int r;

	spin_lock_irq(&e->queue_lock);
	e->nr_wanted += more;
	/* What others want may be on its way. */
	missing = more > 0 ? e->nr_wanted - e->nr_pages : 0;
	spin_unlock_irq(&e->queue_lock);
	r = pages_alloc(&fresh, missing, gfp);
	spin_lock_irq(&e->queue_lock);
	e->nr_pages += fresh.nr;
	pages_join(&e->given, &fresh);
	if (more > 0)
		WRITE_ONCE(e->wants_rest, false);
	if (r)
		e->nr_wanted -= more;
	spin_unlock_irq(&e->queue_lock);
	engine_wake(e);
	return r;
}

/* So much is not given back: any job finds room in it. */
static unsigned int nr_kept(const struct cow_engine *e)
{
	return max(kib_to_pages(ENGINE_KEPT_KIB), e->nr_first);
}

/* Does nothing if it is to look already. */
static void look_later(struct cow_engine *e)
{
	if (e->nr_base > nr_kept(e))
		schedule_delayed_work(&e->give_back, ENGINE_LOOK);
}

/* Since this was asked last, of the pages for jobs: what is free may be for undo buffers. */
static unsigned int nr_unused(struct cow_engine *e)
{
	unsigned int least;
	long nr;

	lockdep_assert_held(&e->base_lock);
	spin_lock_irq(&e->queue_lock);
	least = min(READ_ONCE(e->nr_least), nr_free(e));
	nr = least - (e->nr_wanted - e->nr_base);
	WRITE_ONCE(e->nr_least, nr_free(e));
	spin_unlock_irq(&e->queue_lock);
	return max(nr, 0L);
}

static void engine_give_back(struct work_struct *work)
{
	struct cow_engine *e = container_of(to_delayed_work(work), struct cow_engine, give_back);
	unsigned int nr;

	mutex_lock(&e->base_lock);
	nr = nr_unused(e) / 2;
	if (e->nr_base > nr_kept(e)) {
		nr = min(nr, e->nr_base - nr_kept(e));
		WRITE_ONCE(e->nr_base, e->nr_base - nr);
		/* Fewer: nothing is allocated. */
		engine_want(e, -(long)nr, GFP_NOIO);
	}
	look_later(e);
	mutex_unlock(&e->base_lock);
}

/* Have at least @nr pages for jobs. */
static int engine_raise(struct cow_engine *e, unsigned int nr, gfp_t gfp)
{
	int r = 0;

	lockdep_assert_held(&e->base_lock);
	if (nr <= e->nr_base)
		return 0;
	r = engine_want(e, nr - e->nr_base, gfp);
	if (!r) {
		WRITE_ONCE(e->nr_base, nr);
		look_later(e);
	}
	return r;
}

/*
 * A step towards the budget, and the next one a jiffy later, if it is wanted then: those who write
 * have the processor in between. It ends where memory does; with less, less is copied at a time.
 * Memory is not waited for: whoever has suspended the origin may want base_lock, and memory wait
 * for the origin.
 */
static void engine_rest(struct work_struct *work)
{
	struct cow_engine *e = container_of(to_delayed_work(work), struct cow_engine, rest);
	const gfp_t gfp = GFP_NOIO | __GFP_NORETRY | __GFP_NOWARN;
	unsigned int step;

	mutex_lock(&e->base_lock);
	step = min(e->nr_base, kib_to_pages(ENGINE_STEP_KIB));
	if (rest_wait(e)) {
		/* It was wanted while the last step was taken. */
		schedule_delayed_work(&e->rest, rest_wait(e));
	} else if (READ_ONCE(e->wants_rest)) {
		WRITE_ONCE(e->rest_after, jiffies + 1);
		if (engine_raise(e, min(e->nr_base + step, e->nr_budget), gfp))
			WRITE_ONCE(e->rest_after, jiffies + ENGINE_REST_AGAIN);
	}
	mutex_unlock(&e->base_lock);
}

/*
 * With jobs of @sectors; in KiB. What another store asked for may still be on its way: a budget
 * that nobody has set never shrinks.
 */
static unsigned int budget_kib(const struct cow_engine *e, unsigned int sectors)
{
	unsigned int kib = READ_ONCE(kcopyd_budget), most;

	lockdep_assert_held(&e->base_lock);
	if (kib)
		return clamp(kib, ENGINE_MIN_BUDGET_KIB, ENGINE_MAX_BUDGET_KIB);
	most = min_t(unsigned long, ENGINE_BUDGET_MOST_KIB,
		     (totalram_pages() << (PAGE_SHIFT - 10)) / ENGINE_BUDGET_SHARE);
	most = max(most, ENGINE_BUDGET_KIB);
	kib = clamp(ENGINE_BUDGET_JOBS * (sectors / 2), ENGINE_BUDGET_KIB, most);
	return max(kib, e->nr_budget << (PAGE_SHIFT - 10));
}

int cow_engine_reserve(struct cow_engine *e, unsigned int sectors)
{
	unsigned int kib, first;
	int r;

	mutex_lock(&e->base_lock);
	kib = budget_kib(e, sectors);
	first = max(sectors_to_pages(sectors), kib_to_pages(min(kib, ENGINE_FIRST_KIB)));
	r = engine_raise(e, first, GFP_KERNEL);
	if (!r) {
		WRITE_ONCE(e->nr_first, max(e->nr_first, first));
		WRITE_ONCE(e->nr_budget, kib_to_pages(kib));
	}
	mutex_unlock(&e->base_lock);
	return r;
}

int cow_engine_buffer(struct cow_engine *e, unsigned int from, unsigned int to)
{
	return engine_want(e, (long)DIV_ROUND_UP(to, PAGE_SIZE / 1024) -
			   (long)DIV_ROUND_UP(from, PAGE_SIZE / 1024), GFP_KERNEL);
}

void cow_engine_set_throttle(struct cow_engine *e, unsigned int percent)
{
	WRITE_ONCE(e->throttle, percent);
	cow_engine_kick(e);
}

void cow_engine_set_hurry(struct cow_engine *e, bool hurry)
{
	WRITE_ONCE(e->hurry, hurry);
	cow_engine_kick(e);
}

void cow_engine_set_first(struct cow_engine *e, bool first)
{
	set_user_nice(e->worker->task, first ? MIN_NICE : 0);
}

void cow_engine_set_closing(struct cow_engine *e, bool closing)
{
	WRITE_ONCE(e->closing, closing);
	cow_engine_kick(e);
}

bool cow_engine_writes_at_once(struct cow_engine *e)
{
	return READ_ONCE(e->at_once);
}

unsigned int cow_engine_throttle(struct cow_engine *e)
{
	return READ_ONCE(e->throttle);
}

void cow_engine_read_stats(struct cow_engine *e, struct cow_engine_stats *out)
{
	*out = e->stats;
	out->kib = READ_ONCE(e->nr_pages) << (PAGE_SHIFT - 10);
}

void cow_engine_reset_stats(struct cow_engine *e)
{
	memset(&e->stats, 0, sizeof(e->stats));
}

/* Its thread, which sleeps. Since 6.14 it has to be woken to begin. */
static int engine_start(struct cow_engine *e, dev_t dev)
{
	e->worker = kthread_create_worker(0, "cowsnap-%u:%u", MAJOR(dev), MINOR(dev));
	if (IS_ERR(e->worker))
		return PTR_ERR(e->worker);
	wake_up_process(e->worker->task);
	return 0;
}

static void engine_init(struct cow_engine *e)
{
	bio_list_init(&e->writes);
	bio_list_init(&e->alone);
	kthread_init_work(&e->work, engine_work);
	kthread_init_delayed_work(&e->unpause, engine_unpause);
	kthread_init_delayed_work(&e->wake_later, engine_wake_later);
	kthread_init_delayed_work(&e->aside_over, engine_aside_over);
	kthread_init_delayed_work(&e->gathered, engine_gathered);
	mutex_init(&e->base_lock);
	INIT_DELAYED_WORK(&e->rest, engine_rest);
	e->rest_after = jiffies;
	INIT_DELAYED_WORK(&e->give_back, engine_give_back);
	e->nr_least = UINT_MAX;
	spin_lock_init(&e->queue_lock);
	INIT_LIST_HEAD(&e->waiting);
	INIT_LIST_HEAD(&e->order);
	INIT_LIST_HEAD(&e->writing);
	INIT_LIST_HEAD(&e->later);
	INIT_LIST_HEAD(&e->read);
	INIT_LIST_HEAD(&e->patient);
	INIT_LIST_HEAD(&e->aside);
	INIT_LIST_HEAD(&e->written);
	INIT_LIST_HEAD(&e->ended);
}

/*
 * Does @bdev itself say what REQ_NOWAIT means: with tags, or by ending what it gets at once? A
 * driver of bios passes the flag on to devices that come and go below it, or gets it wrong: md's
 * raid10 hangs after a read that it refused during a check.
 */
static bool knows_nowait(struct block_device *bdev)
{
	return queue_is_mq(bdev_get_queue(bdev)) || bdev_synchronous(bdev);
}

/* Does it tell of stripes over several disks, a request to each of which is best? */
static bool is_striped(struct block_device *bdev)
{
	return bdev_io_opt(bdev) > bdev_io_min(bdev);
}

struct cow_engine *cow_engine_create(struct block_device *bdev, const struct cow_engine_ops *ops,
				     void *context)
{
	struct cow_engine *e = kzalloc(sizeof(*e), GFP_KERNEL);
	int r;

	if (!e)
		return ERR_PTR(-ENOMEM);
	e->ops = ops;
	e->context = context;
	e->throttle = 100;
	e->write_ns = WRITE_NS_AT_FIRST;
	e->rotational = bdev_rot(bdev);
	e->cached = e->rotational && bdev_write_cache(bdev);
	e->one_head = e->rotational && !is_striped(bdev);
	e->always_waits = !knows_nowait(bdev);
	engine_init(e);
	r = bioset_init(&e->bios, 16, offsetof(struct cow_io, bio), BIOSET_NEED_BVECS);
	if (r)
		goto free;
	r = engine_start(e, bdev->bd_dev);
	if (r)
		goto exit_bios;
	return e;

exit_bios:
	bioset_exit(&e->bios);
free:
	kfree(e);
	return ERR_PTR(r);
}

void cow_engine_destroy(struct cow_engine *e)
{
	cancel_delayed_work_sync(&e->rest);
	cancel_delayed_work_sync(&e->give_back);
	/* Completions may still be about to wake the worker for jobs that are done. */
	synchronize_rcu();
	/* Its last rounds may start timers, these wake it, and a round may queue the next one. */
	kthread_flush_worker(e->worker);
	kthread_cancel_delayed_work_sync(&e->unpause);
	kthread_cancel_delayed_work_sync(&e->wake_later);
	kthread_cancel_delayed_work_sync(&e->aside_over);
	kthread_cancel_delayed_work_sync(&e->gathered);
	do {
		kthread_flush_work(&e->work);
	} while (atomic_read(&e->state) != ENGINE_IDLE);
	kthread_destroy_worker(e->worker);
	pages_join(&e->free, &e->given);
	WARN_ON(e->free.nr != e->nr_pages);
	pages_free(&e->free);
	bioset_exit(&e->bios);
	kfree(e);
}
