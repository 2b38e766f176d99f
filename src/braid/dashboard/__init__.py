"""What does the network look like to those who watch it in a browser?

`braid dashboard` asks every broker about itself once a second, as `braid overlay top` does, makes a
picture of the network from what they say, and serves it, with everything a page needs, to any number of
viewers up to a bound. It is a process of its own: whatever viewers do, brokers only ever hear the same few
questions.

`watch` asks, `picture` and `history` make sense of the answers, `viewers` hands them out, `guard` says who
may see and do what, `trial` publishes and finds the way of a publication, `plans` previews and carries out
changes of the tree, `covering` sorts subscriptions, and `web` serves all of it.
"""

from __future__ import annotations

__all__: list[str] = []
