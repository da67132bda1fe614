/* Breadth-first exploration in levels. kernels.h is generated from the specification; it defines WORDS and

     static void expand(const u64 *w, Sink *sink);   calls emit() for every enabled step, sets sink->goes_on
     static u64 invariants_broken(const u64 *w, int set);   bit i: invariant i, one of that set, does not hold
     static int at_rest(const u64 *w);
     static void canonical(const u64 *w, u64 *o);    the least image under the declared symmetries, or w itself

   States are divided among the threads by their hash. In a round every thread expands some states of its own part and
   sorts the successors by owner; then every thread puts into its part what all of them found for it. */

#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef uint64_t u64;
typedef int64_t i64;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint8_t u8;

typedef struct Sink Sink;
static void emit(Sink *sink, int step, const u64 *o, u64 broken, u64 reached, int leaves, int touched);

/* Where steps go: into the outboxes of a search, or, without one, into arrays. */
struct Sink {
    struct Search *search;
    struct Outbox *to; /* one a part */
    u64 *seen;         /* states found a moment ago, by their hash */
    u64 reached, broken, transitions;
    int goes_on, leaves;
    i32 source;
    u64 capacity;
    i32 *sources, *steps;
    u64 *targets, *broken_by_step, *reached_by_step;
    u8 *leaves_by_step;
};

#include "kernels.h"

#define THREADS_MAX 16
#define ROUND_STATES 4096
#define AHEAD 16
#define SEEN (1 << 13)
#define FIRST_BITS 12
#define NO_WORD 0xFFFFFFFFFFFFFFFFULL /* fills what has seen nothing */

typedef struct {
    u64 hash;
    int touched;
    u64 w[WORDS];
} Found;

typedef struct Outbox {
    Found *found;
    u64 count, capacity;
} Outbox;

typedef struct {
    u64 *states; /* in the order of discovery, so level by level */
    u64 count, capacity;
    u64 *table; /* open addressing: upper half of the hash, index + 1 */
    u64 slots;
    int shift; /* 64 - log2(slots) */
    u64 level_begin, level_end;
} Part;

typedef struct {
    u64 words_of_state, states, frontier, transitions, depth, bytes, bytes_peak;
    u64 reached;                 /* bit i: outcome i was reached */
    u64 stop;                    /* set by the caller: give up at the end of the round */
    u64 cut;                     /* a budget ran out, or the caller gave up */
    u64 no_memory;
    i64 step_depth[64], invariant_depth[64], leaves_depth, deadlock_depth; /* length of the shortest run, -1: none */
} Report;

typedef struct Search {
    Report *report;
    int threads, stop_at_violation, checks_bounds, checks_deadlock;
    u64 step_mask, invariant_mask, states_max, bytes_max;
    Part part[THREADS_MAX];
    Outbox outbox[THREADS_MAX][THREADS_MAX]; /* [from][to] */
    u64 *level_ends[THREADS_MAX];            /* where each level of a part ends */
    u64 levels, levels_capacity;
    u64 round_begin, rounds_left, done;
    pthread_barrier_t barrier;
    pthread_mutex_t lock;
} Search;

static inline int same(const u64 *a, const u64 *b) {
    u64 difference = 0;
    for (int i = 0; i < WORDS; i++) difference |= a[i] ^ b[i];
    return !difference;
}

static inline int owner(u64 hash, int threads) { /* by bits that the tables do not use */
    return (int)((hash & 0xFFFF) * (u64)threads >> 16);
}

static inline u64 hash_of(const u64 *w) {
    static const u64 factor[4] = {0x9E3779B97F4A7C15ULL, 0xBF58476D1CE4E5B9ULL, 0x94D049BB133111EBULL, 0xD6E8FEB86659FD93ULL};
    u64 h = WORDS;
    for (int i = 0; i < WORDS; i++) {
        u64 x = (w[i] ^ (w[i] >> 32)) * factor[i % 4];
        h += i / 4 ? x << 7 | x >> 57 : x;
        h ^= x >> 31;
    }
    h ^= h >> 32;
    h *= 0xD6E8FEB86659FD93ULL;
    return h ^ (h >> 29);
}

/* Address space first, memory as it is touched; large pages where the kernel grants them. */
static void *reserve(u64 bytes) {
    void *p = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return 0;
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static void send(Outbox *box, const u64 *w, u64 hash, int touched) {
    if (box->count == box->capacity) {
        u64 capacity = box->capacity ? box->capacity * 2 : 1024;
        Found *grown = realloc(box->found, capacity * sizeof(Found));
        if (!grown) abort();
        box->found = grown;
        box->capacity = capacity;
    }
    Found *f = &box->found[box->count++];
    f->hash = hash;
    f->touched = touched;
    memcpy(f->w, w, sizeof f->w);
}

static void collect(Sink *sink, int step, const u64 *o, u64 broken, u64 reached, int leaves) {
    u64 i = sink->transitions++;
    if (i >= sink->capacity) return;
    sink->sources[i] = sink->source;
    sink->steps[i] = step;
    sink->broken_by_step[i] = broken;
    sink->reached_by_step[i] = reached;
    sink->leaves_by_step[i] = (u8)leaves;
    if (leaves) memset(sink->targets + i * WORDS, 0, WORDS * 8);
    else memcpy(sink->targets + i * WORDS, o, WORDS * 8);
}

/* `touched`: the set of invariants that speak of something that the step changes; set 0 has all of them. The others hold after it if they held before;
   and if one of those did not, its shortest run is known already. */
static void emit(Sink *sink, int step, const u64 *o, u64 broken, u64 reached, int leaves, int touched) {
    if (!sink->search) {
        collect(sink, step, o, broken, reached, leaves);
        return;
    }
    sink->transitions++;
    sink->broken |= broken;
    sink->reached |= reached;
    sink->leaves |= leaves;
    if (leaves) return; /* no such state can be written down */
    u64 c[WORDS];
    canonical(o, c);
    u64 hash = hash_of(c), *seen = sink->seen + WORDS * (hash >> 16 & (SEEN - 1));
    if (same(seen, c) && c[0] != NO_WORD) return; /* found a moment ago */
    memcpy(seen, c, sizeof c);
    send(&sink->to[owner(hash, sink->search->threads)], c, hash, touched);
}

/* Where a hash begins to look: by its upper bits, which an entry keeps. So a larger table has the same order. */
static inline u64 place_of(const Part *p, u64 hash) { return hash >> p->shift; }

static int grow_table(Part *p) {
    u64 slots = p->slots * 2, *table = reserve(slots * 8), *old = p->table;
    if (!table) return 0;
    p->shift--;
    for (u64 i = 0; i < p->slots; i++) {
        if (!old[i]) continue;
        u64 j = place_of(p, old[i]);
        while (table[j]) j = (j + 1) & (slots - 1);
        table[j] = old[i];
    }
    munmap(old, p->slots * 8);
    p->table = table;
    p->slots = slots;
    return 1;
}

/* Take in what `box` holds; the invariants broken by new states. */
static u64 take_in(Search *s, Part *p, Outbox *box) {
    u64 broken = 0;
    for (u64 first = 0; first < box->count; first += AHEAD) {
        u64 last = first + AHEAD < box->count ? first + AHEAD : box->count;
        if ((p->count + AHEAD) * 3 > p->slots * 2 && !grow_table(p)) { s->report->no_memory = 1; break; }
        if (p->count + AHEAD > p->capacity) { s->report->no_memory = 1; break; }
        for (u64 i = first; i < last; i++) __builtin_prefetch(&p->table[place_of(p, box->found[i].hash)]);
        for (u64 i = first; i < last; i++) {
            u64 entry = p->table[place_of(p, box->found[i].hash)];
            if (entry) __builtin_prefetch(p->states + WORDS * ((u32)entry - 1));
        }
        for (u64 i = first; i < last; i++) {
            const Found *f = &box->found[i];
            u64 tag = f->hash & 0xFFFFFFFF00000000ULL, j = place_of(p, f->hash);
            for (;; j = (j + 1) & (p->slots - 1)) {
                u64 entry = p->table[j];
                if (!entry) {
                    memcpy(p->states + WORDS * p->count, f->w, sizeof f->w);
                    p->table[j] = tag | ++p->count;
                    broken |= invariants_broken(f->w, f->touched);
                    break;
                }
                if ((entry & 0xFFFFFFFF00000000ULL) == tag &&
                    same(p->states + WORDS * ((u32)entry - 1), f->w))
                    break;
            }
        }
    }
    box->count = 0;
    return broken;
}

/* The length of the shortest run to each kind of violation. */
static void note(i64 *depths, u64 broken, u64 depth) {
    for (; broken; broken &= broken - 1) {
        int i = __builtin_ctzll(broken);
        if (depths[i] < 0) depths[i] = (i64)depth;
    }
}

static void *explore_part(void *argument) {
    struct { Search *search; int number; } *me = argument;
    Search *s = me->search;
    int t = me->number;
    Part *p = &s->part[t];
    Report *r = s->report;
    Sink sink = {.search = s, .to = s->outbox[t], .seen = calloc(SEEN * WORDS, 8)};
    if (!sink.seen) abort();
    memset(sink.seen, 0xFF, SEEN * WORDS * 8);
    for (;;) {
        pthread_barrier_wait(&s->barrier);
        if (s->done) {
            free(sink.seen);
            return 0;
        }
        u64 begin = p->level_begin + s->round_begin, end = begin + ROUND_STATES;
        if (end > p->level_end) end = p->level_end;
        sink.reached = r->reached;
        sink.broken = sink.transitions = 0;
        sink.leaves = 0;
        int stuck = 0;
        for (u64 i = begin; i < end; i++) {
            const u64 *w = p->states + WORDS * i;
            sink.goes_on = 0;
            expand(w, &sink);
            stuck |= !sink.goes_on && !at_rest(w);
        }
        pthread_barrier_wait(&s->barrier);
        u64 invariants = 0;
        for (int from = 0; from < s->threads; from++) invariants |= take_in(s, p, &s->outbox[from][t]);
        pthread_mutex_lock(&s->lock);
        r->transitions += sink.transitions;
        r->reached |= sink.reached;
        note(r->step_depth, sink.broken, s->levels);
        note(r->invariant_depth, invariants, s->levels);
        if (sink.leaves && r->leaves_depth < 0) r->leaves_depth = (i64)s->levels;
        if (stuck && r->deadlock_depth < 0) r->deadlock_depth = (i64)s->levels - 1;
        pthread_mutex_unlock(&s->lock);
        pthread_barrier_wait(&s->barrier);
    }
}

static int violated(const Search *s) {
    const Report *r = s->report;
    for (int i = 0; i < 64; i++) {
        if (r->step_depth[i] >= 0 && s->step_mask >> i & 1) return 1;
        if (r->invariant_depth[i] >= 0 && s->invariant_mask >> i & 1) return 1;
    }
    return (s->checks_bounds && r->leaves_depth >= 0) || (s->checks_deadlock && r->deadlock_depth >= 0);
}

/* Where a level ends in every part; the length of the longest part of the next level. */
static u64 next_level(Search *s) {
    if (s->levels == s->levels_capacity) {
        s->levels_capacity = s->levels_capacity ? s->levels_capacity * 2 : 256;
        for (int t = 0; t < s->threads; t++) {
            s->level_ends[t] = realloc(s->level_ends[t], s->levels_capacity * 8);
            if (!s->level_ends[t]) abort();
        }
    }
    u64 longest = 0;
    for (int t = 0; t < s->threads; t++) {
        Part *p = &s->part[t];
        p->level_begin = p->level_end;
        p->level_end = p->count;
        s->level_ends[t][s->levels] = p->count;
        if (p->level_end - p->level_begin > longest) longest = p->level_end - p->level_begin;
    }
    s->levels++;
    return longest;
}

static void measure(Search *s) {
    Report *r = s->report;
    u64 states = 0, bytes = sizeof *s, frontier = 0;
    for (int t = 0; t < s->threads; t++) {
        states += s->part[t].count;
        frontier += s->part[t].count - s->part[t].level_begin;
        bytes += s->part[t].count * WORDS * 8 + s->part[t].slots * 8;
        for (int to = 0; to < s->threads; to++) bytes += s->outbox[t][to].capacity * sizeof(Found);
    }
    r->states = states;
    r->frontier = frontier;
    r->bytes = bytes;
    if (bytes > r->bytes_peak) r->bytes_peak = bytes;
    r->cut = r->stop || r->no_memory || states > s->states_max || bytes > s->bytes_max;
}

void explore(Search *s, const u64 *initial) {
    Report *r = s->report;
    u64 w[WORDS];
    canonical(initial, w);
    u64 hash = hash_of(w);
    int first = owner(hash, s->threads);
    send(&s->outbox[0][first], w, hash, 0);
    note(r->invariant_depth, take_in(s, &s->part[first], &s->outbox[0][first]), 0);
    pthread_t thread[THREADS_MAX];
    struct { Search *search; int number; } argument[THREADS_MAX];
    pthread_barrier_init(&s->barrier, 0, (unsigned)s->threads + 1);
    pthread_mutex_init(&s->lock, 0);
    for (int t = 0; t < s->threads; t++) {
        argument[t].search = s;
        argument[t].number = t;
        if (pthread_create(&thread[t], 0, explore_part, &argument[t])) abort();
    }
    for (u64 longest; (longest = next_level(s));) {
        r->depth = s->levels - 1;
        if (r->cut || (s->stop_at_violation && violated(s))) break;
        for (s->round_begin = 0; s->round_begin < longest && !r->cut; s->round_begin += ROUND_STATES) {
            pthread_barrier_wait(&s->barrier);
            pthread_barrier_wait(&s->barrier);
            pthread_barrier_wait(&s->barrier);
            measure(s);
        }
    }
    s->done = 1;
    pthread_barrier_wait(&s->barrier);
    for (int t = 0; t < s->threads; t++) pthread_join(thread[t], 0);
    measure(s);
    pthread_barrier_destroy(&s->barrier);
    pthread_mutex_destroy(&s->lock);
}

void close_search(Search *s) {
    for (int t = 0; t < s->threads; t++) {
        Part *p = &s->part[t];
        if (p->states) munmap(p->states, p->capacity * WORDS * 8);
        if (p->table) munmap(p->table, p->slots * 8);
        free(s->level_ends[t]);
        for (int to = 0; to < s->threads; to++) free(s->outbox[t][to].found);
    }
    free(s);
}

/* A search that has found nothing yet; 0 without memory. `capacity`: the most states that a part may hold. */
Search *open_search(Report *report, int threads, u64 capacity, u64 states_max, u64 bytes_max) {
    Search *s = calloc(1, sizeof *s);
    if (!s) return 0;
    s->report = report;
    s->threads = threads;
    s->states_max = states_max;
    s->bytes_max = bytes_max;
    memset(report, 0, sizeof *report);
    report->words_of_state = WORDS;
    report->leaves_depth = report->deadlock_depth = -1;
    for (int i = 0; i < 64; i++) report->step_depth[i] = report->invariant_depth[i] = -1;
    for (int t = 0; t < threads; t++) {
        Part *p = &s->part[t];
        p->capacity = capacity;
        p->slots = 1 << FIRST_BITS;
        p->shift = 64 - FIRST_BITS;
        p->states = reserve(capacity * WORDS * 8);
        p->table = reserve(p->slots * 8);
        if (!p->states || !p->table) {
            close_search(s);
            return 0;
        }
    }
    return s;
}

/* What is checked, and whether the search stops after the level of the first violation. */
void set_checks(Search *s, u64 steps, u64 invariants, int bounds, int deadlock, int stop) {
    s->step_mask = steps;
    s->invariant_mask = invariants;
    s->checks_bounds = bounds;
    s->checks_deadlock = deadlock;
    s->stop_at_violation = stop;
}

/* The states of one level, copied to `out` if it is not 0; how many there are. */
u64 level_states(const Search *s, u64 level, u64 *out) {
    u64 total = 0;
    for (int t = 0; t < s->threads; t++) {
        if (level >= s->levels) continue;
        u64 begin = level ? s->level_ends[t][level - 1] : 0, count = s->level_ends[t][level] - begin;
        if (out) memcpy(out + total * WORDS, s->part[t].states + begin * WORDS, count * WORDS * 8);
        total += count;
    }
    return total;
}

/* Every step from `count` states, in the order of the states and of the text; how many there are. If they are more than
   `capacity` the rest is only counted. `stuck`: no fair action is enabled and the system is not at rest. */
u64 successors(const u64 *states, u64 count, u64 capacity, i32 *sources, i32 *steps, u64 *targets, u64 *broken,
               u64 *reached, u8 *leaves, u8 *stuck) {
    Sink sink = {.capacity = capacity, .sources = sources, .steps = steps, .targets = targets, .broken_by_step = broken,
                 .reached_by_step = reached, .leaves_by_step = leaves};
    for (u64 i = 0; i < count; i++) {
        sink.source = (i32)i;
        sink.goes_on = 0;
        expand(states + i * WORDS, &sink);
        stuck[i] = !sink.goes_on && !at_rest(states + i * WORDS);
    }
    return sink.transitions;
}

void broken_invariants(const u64 *states, u64 count, u64 *broken) {
    for (u64 i = 0; i < count; i++) broken[i] = invariants_broken(states + i * WORDS, 0);
}

void canonical_states(const u64 *states, u64 count, u64 *out) {
    for (u64 i = 0; i < count; i++) canonical(states + i * WORDS, out + i * WORDS);
}
