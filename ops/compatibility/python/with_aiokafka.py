"""aiokafka, which speaks old versions of most APIs: groups, static members, transactions."""

from checks import run
from features import of_groups, of_transactions

from ops.clients.with_aiokafka import library

if __name__ == "__main__":
    run({**of_groups(library, ("range", "sticky")), **of_transactions(library)})
