import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.header.internals.RecordHeader;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What the Java client sends and reads, record by record. */
final class RecordChecks {
    private RecordChecks() {}

    static Map<String, Main.Check> all() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put(
                "records: every compression codec, keys, headers, timestamps",
                RecordChecks::codecs);
        checks.put("records: offsets by time, seek, begin and end", RecordChecks::offsets);
        checks.put("records: too large is refused", RecordChecks::tooLarge);
        return checks;
    }

    private static void codecs(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        List<String> codecs = List.of("none", "gzip", "snappy", "lz4", "zstd");
        for (String codec : codecs) {
            try (KafkaProducer<String, String> producer =
                    cluster.producer("compression.type", codec, "linger.ms", "5")) {
                for (int number = 0; number < 100; number++) {
                    ProducerRecord<String, String> record =
                            new ProducerRecord<>(
                                    topic, 0, 1_700_000_000_000L + number, codec, "v" + number);
                    record.headers().add(new RecordHeader("h", codec.getBytes()));
                    producer.send(record);
                }
            }
        }
        try (KafkaConsumer<String, String> consumer = cluster.consumer()) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            List<ConsumerRecord<String, String>> records = Cluster.read(consumer, 500);
            for (int number = 0; number < 500; number++) {
                ConsumerRecord<String, String> record = records.get(number);
                String codec = codecs.get(number / 100);
                Cluster.same(codec, record.key(), "key");
                Cluster.same("v" + number % 100, record.value(), "value");
                Cluster.same(codec, new String(record.headers().lastHeader("h").value()), "header");
                Cluster.same(1_700_000_000_000L + number % 100, record.timestamp(), "timestamp");
                Cluster.same((long) number, record.offset(), "offset");
            }
        }
    }

    private static void offsets(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = cluster.producer()) {
            for (int number = 0; number < 10; number++) {
                producer.send(
                                new ProducerRecord<>(
                                        topic,
                                        0,
                                        1_700_000_000_000L + 1000 * number,
                                        null,
                                        "v" + number))
                        .get();
            }
        }
        try (KafkaConsumer<String, String> consumer = cluster.consumer()) {
            Cluster.same(
                    4L,
                    consumer.offsetsForTimes(Map.of(partition, 1_700_000_003_500L))
                            .get(partition)
                            .offset(),
                    "by time");
            Cluster.require(
                    consumer.offsetsForTimes(Map.of(partition, 1_800_000_000_000L)).get(partition)
                            == null,
                    "time in the future");
            Cluster.same(Map.of(partition, 10L), consumer.endOffsets(List.of(partition)), "end");
            Cluster.same(
                    Map.of(partition, 0L),
                    consumer.beginningOffsets(List.of(partition)),
                    "beginning");
            consumer.assign(List.of(partition));
            consumer.seek(partition, 7);
            Cluster.same("v7", Cluster.read(consumer, 3).get(0).value(), "after seek");
        }
    }

    private static void tooLarge(Cluster cluster) throws Exception {
        String topic = cluster.topic(1, "max.message.bytes", "1000");
        try (KafkaProducer<String, String> producer = cluster.producer()) {
            Cluster.fails(
                    RecordTooLargeException.class,
                    () -> producer.send(new ProducerRecord<>(topic, "x".repeat(2000))).get());
            producer.send(new ProducerRecord<>(topic, "small")).get();
        }
    }
}
