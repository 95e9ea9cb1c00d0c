"""The table of APIs, and a module for each off the hot path: a function from (request, broker, body) to a response.

Run by handlers and the controller. A response is what the API's encoder takes: a value of `broker.protocol.messages`
where the API has a codec of its own, a plain dict of Kafka's field names elsewhere. An answer that waits is
a `Deferred`. Produce and Fetch are in `broker.partitions`, what groups and transactions ask for in
`broker.coordinator`.
"""
