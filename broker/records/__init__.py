"""Record batches, magic 2: reading, writing, checking and compressing them.

Handlers validate and append batches as they are, the log walks them, clients and coordinators build them. Pure, as
`broker.protocol`, and knows no request: a batch is opaque to a message, and its codecs need no schema.
"""
