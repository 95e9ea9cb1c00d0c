"""The table of APIs, and a module for each off the hot path: a function from (request, broker, body) to a response.

Run by handlers and the controller. A body is the compiled value of the request, a response a mapping of Kafka's field
names (`broker.protocol.codec`). A delayed response is a `Deferred`. Produce and Fetch are in `broker.partitions`, the
logic of groups and transactions in `broker.coordinator`.
"""
