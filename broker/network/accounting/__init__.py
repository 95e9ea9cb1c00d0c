"""The accounting of a processor: clients, connections and requests, and the rows that it sends to the recorder."""
