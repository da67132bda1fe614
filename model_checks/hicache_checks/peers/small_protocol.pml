/*
 * The protocol of small_protocol.py, written by hand and packed as tightly as Promela allows: 3 requests, 2 ranks.
 * A queue is a byte: two bits an entry (the request plus one), the head lowest; no entry is 0.
 * Numbers of pages are two bits a request, flags one bit. It has the states of small_protocol.py, one for one.
 *
 *     spin -a -o2 small_protocol.pml && cc -O3 -DSAFETY -DNOREDUCE -DNOCOMP -o pan pan.c && ./pan -m100000
 *
 * -DUNCHECKED (for spin): without the properties.  -DPAGES=3 -DPOOL_PAGES=5 (for spin): larger.
 */
#ifndef PAGES
#define PAGES 2
#endif
#ifndef POOL_PAGES
#define POOL_PAGES 3
#endif

#define NEW 0
#define QUEUED 1
#define ALLOCATED 2
#define STOPPING 3
#define REVOKED 4
#define FETCHED 5
#define TERMINATED 6

short status;     /* three bits a request: its phase; then one bit a request: aborted */
byte granted;     /* pages */
byte released;    /* flags: three of rank 0, three of rank 1 */
byte query_queue[2];
byte hit_queue[2];
byte buffer[2];
byte release_queue[2];
byte hit[2];      /* pages */
byte landed[2];   /* pages */

hidden byte i;
hidden byte n;
hidden byte agreed;

#define least(a, b) ((a) < (b) -> (a) : (b))
#define phase(q) ((status >> (3 * (q))) & 7)
#define become(q, p) status = (status & ~(7 << (3 * (q)))) | ((p) << (3 * (q)))
#define aborted(q) (status & (512 << (q)))
#define pages(x, q) (((x) >> (2 * (q))) & 3)
#define total(x) (((x) & 3) + (((x) >> 2) & 3) + (((x) >> 4) & 3))
#define none(x, q) x = x & ~(3 << (2 * (q)))
#define length(queue) ((queue) > 15 -> 3 : ((queue) > 3 -> 2 : ((queue) > 0 -> 1 : 0)))
#define put(queue, q) queue = queue | (((q) + 1) << (2 * length(queue)))
#define head(queue) (((queue) & 3) - 1)
#define pop(queue) queue = queue >> 2

inline submit(q) {
    d_step { phase(q) == NEW -> become(q, QUEUED); put(query_queue[0], q); put(query_queue[1], q) }
}

inline abort(q) {
    d_step {
        (phase(q) == QUEUED || phase(q) == ALLOCATED) && !aborted(q) ->
        status = status | (512 << (q));
        if
        :: phase(q) == ALLOCATED -> become(q, STOPPING)
        :: else
        fi
    }
}

inline stop(q) {
    d_step { phase(q) == ALLOCATED -> become(q, STOPPING) }
}

inline answer(r, h) {
    d_step {
        query_queue[r] > 0 ->
        i = head(query_queue[r]);
        pop(query_queue[r]);
        hit[r] = hit[r] | ((h) << (2 * i));
        put(hit_queue[r], i);
        i = 0
    }
}

inline read(r) {
    d_step {
        buffer[r] > 0 ->
        i = head(buffer[r]);
        if
        :: phase(i) != STOPPING -> landed[r] = landed[r] + (1 << (2 * i))
        :: else
        fi;
        if
        :: phase(i) == STOPPING || pages(landed[r], i) == pages(granted, i) -> pop(buffer[r]); put(release_queue[r], i)
        :: else
        fi;
        i = 0
    }
}

inline drain_hits() {
    d_step {
        hit_queue[0] > 0 && hit_queue[1] > 0 ->
        n = least(length(hit_queue[0]), length(hit_queue[1]));
        do
        :: n > 0 ->
            i = head(hit_queue[0]);
            agreed = least(pages(hit[0], i), pages(hit[1], i));
            pop(hit_queue[0]); pop(hit_queue[1]);
            none(hit[0], i); none(hit[1], i);
            if
            :: aborted(i) || agreed == 0 || agreed + total(granted) > POOL_PAGES -> become(i, REVOKED)
            :: else ->
                become(i, ALLOCATED);
                granted = granted | (agreed << (2 * i));
                put(buffer[0], i); put(buffer[1], i)
            fi;
            n--
        :: else -> break
        od;
        i = 0; agreed = 0
    }
}

inline finish(q) {
    if
    :: (released & (9 << (q))) == (9 << (q)) ->
        if
        :: least(pages(landed[0], q), pages(landed[1], q)) == pages(granted, q) -> become(q, FETCHED)
        :: else -> become(q, TERMINATED)
        fi;
        none(granted, q); none(landed[0], q); none(landed[1], q);
        released = released & ~(9 << (q))
    :: else
    fi
}

inline drain_releases() {
    d_step {
        release_queue[0] > 0 && release_queue[1] > 0 ->
        n = least(length(release_queue[0]), length(release_queue[1]));
        do
        :: n > 0 ->
            released = released | (1 << head(release_queue[0])) | (8 << head(release_queue[1]));
            pop(release_queue[0]); pop(release_queue[1]);
            n--
        :: else -> break
        od;
        finish(0); finish(1); finish(2)
    }
}

#define pool_is_kept (total(granted) <= POOL_PAGES)
#define is_gone(q) (phase(q) == ALLOCATED && aborted(q))
#define aborted_are_not_allocated (!is_gone(0) && !is_gone(1) && !is_gone(2))

active proctype system() {
end:
    do
    :: submit(0)
    :: submit(1)
    :: submit(2)
    :: abort(0)
    :: abort(1)
    :: abort(2)
    :: stop(0)
    :: stop(1)
    :: stop(2)
    :: answer(0, 0)
    :: answer(0, 1)
#if PAGES > 1
    :: answer(0, 2)
#endif
#if PAGES > 2
    :: answer(0, 3)
#endif
    :: answer(1, 0)
    :: answer(1, 1)
#if PAGES > 1
    :: answer(1, 2)
#endif
#if PAGES > 2
    :: answer(1, 3)
#endif
    :: read(0)
    :: read(1)
    :: drain_hits()
    :: drain_releases()
#ifndef UNCHECKED
    :: d_step { !(pool_is_kept && aborted_are_not_allocated) -> assert(false) }
#endif
    od
}
