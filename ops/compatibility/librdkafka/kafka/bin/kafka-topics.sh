#!/bin/sh
# Some of librdkafka's tests call Kafka's own command here, as they would find it in a download of Kafka.
unset LD_PRELOAD
exec java -XX:TieredStopAtLevel=1 -cp "$ROTUNDA_KAFKA_JARS/*" org.apache.kafka.tools.TopicCommand "$@"
