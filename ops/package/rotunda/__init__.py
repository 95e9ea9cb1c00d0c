"""Everything that is installed: a Kafka-compatible broker, its status page and its reports.

In a checkout the rooms are links to the directories at the top.
"""
