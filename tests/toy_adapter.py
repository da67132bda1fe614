"""The toy fork as a system under test: all that its maintainer writes."""

from __future__ import annotations

from toy_fork import Loop


class ToyAdapter:
    """`hicheck conform toy_adapter:ToyAdapter`."""

    packages = ("toy_adapter", "toy_fork")

    def capabilities(self):
        return ("store", "stop", "settle")

    def reset(self, config):
        sizes = (config["host_pages"], config["threshold_pages"], config["limit_pages"])
        self.loop = Loop(*sizes, config["policy"], config["timeout_s_base"])

    def submit(self, rid, tokens):
        return {"accepted": self.loop.want(rid, tokens)}

    def poll(self, rids):
        return {rid: {"ready": self.loop.done(rid)} for rid in rids}

    def abort(self, rid):
        return self.loop.forget(rid)

    def stop(self, rid):
        return self.loop.enough(rid)

    def tick(self):
        self.loop.turn()

    def settle(self):
        self.loop.rest()

    def observe(self):
        counts = {"free_pages": len(self.loop.free), "resident_pages": self.loop.trie.size()}
        operations = {(rid, fetch.number): fetch.given for rid, fetch in self.loop.wanted.items()}
        return {**counts, "occupied_pages": self.loop.waited_for, "operations": operations}

    def store(self, tokens, namespace="mine"):
        if namespace == "mine":
            self.loop.shelve(tokens)

    def close(self):
        self.__dict__.clear()
