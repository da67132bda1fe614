"""A small language model that generates through the cache: what `examples/decode.py` is made of.

model       the transformer: attention, attention within a window, a state-space layer
reference   the same without any cache, and the requests that both answer
paged       where a running request has its keys, values and states: in the device pool's pages
sequence    one running request: match, load back, compute, insert, decode
engine      the loop of a scheduler: submit, tick, abort, poll, start, decode
session     one cache of each tree on each store, in one process
processes   the same in processes of their own: ranks, and what comes after a restart
stores      the stores by their short names, with their servers
report      the table, and the last line
"""
