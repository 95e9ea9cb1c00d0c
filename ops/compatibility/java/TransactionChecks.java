import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Transactions with the Java client. */
final class TransactionChecks {
    private TransactionChecks() {}

    static Map<String, Main.Check> all() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put("transactions: commit and abort", TransactionChecks::commitAndAbort);
        checks.put(
                "transactions: consume, transform, produce", TransactionChecks::transformClassic);
        checks.put(
                "transactions: consume, transform, produce, KIP-848 group",
                c -> transform(c, "consumer"));
        checks.put("transactions: a second producer fences the first", TransactionChecks::fencing);
        checks.put("transactions: one that takes too long is aborted", TransactionChecks::timeout);
        checks.put(
                "transactions: last stable offset and end offsets", TransactionChecks::lastStable);
        return checks;
    }

    private static void commitAndAbort(Cluster cluster) throws Exception {
        String topic = cluster.topic(2);
        try (KafkaProducer<String, String> producer =
                cluster.producer("transactional.id", Cluster.name("tx"))) {
            producer.initTransactions();
            for (int round = 0; round < 6; round++) {
                producer.beginTransaction();
                for (int number = 0; number < 10; number++) {
                    producer.send(
                            new ProducerRecord<>(
                                    topic,
                                    number % 2,
                                    null,
                                    (round % 2 == 0 ? "kept" : "aborted") + round));
                }
                if (round % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
        }
        Set<TopicPartition> partitions =
                Set.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1));
        try (KafkaConsumer<String, String> consumer =
                cluster.consumer("isolation.level", "read_committed")) {
            consumer.assign(partitions);
            List<ConsumerRecord<String, String>> records = Cluster.read(consumer, 30);
            Cluster.require(
                    records.stream().allMatch(record -> record.value().startsWith("kept")),
                    "an aborted record was read");
            Cluster.require(
                    consumer.poll(Duration.ofMillis(300)).isEmpty(),
                    "more than the committed records");
        }
        try (KafkaConsumer<String, String> consumer = cluster.consumer()) {
            consumer.assign(partitions);
            Cluster.same(60, Cluster.read(consumer, 60).size(), "uncommitted records");
        }
    }

    static void transformClassic(Cluster cluster) throws Exception {
        transform(cluster, "classic");
    }

    private static void transform(Cluster cluster, String protocol) throws Exception {
        String from = cluster.topic(2);
        String to = cluster.topic(2);
        String group = Cluster.name("group");
        cluster.fill(from, 2, 200);
        List<String> settings =
                List.of(
                        "group.id",
                        group,
                        "group.protocol",
                        protocol,
                        "isolation.level",
                        "read_committed",
                        "max.poll.records",
                        "20");
        int handled = 0;
        for (int life = 0; life < 2; life++) {
            try (KafkaProducer<String, String> producer =
                            cluster.producer("transactional.id", group + "-tx");
                    KafkaConsumer<String, String> consumer =
                            cluster.consumer(settings.toArray(String[]::new))) {
                producer.initTransactions();
                consumer.subscribe(List.of(from));
                long end = System.nanoTime() + 30_000_000_000L;
                for (int round = 0; handled < 100 * (life + 1); round++) {
                    Cluster.require(
                            System.nanoTime() < end, "only " + handled + " records handled");
                    var records = consumer.poll(Cluster.POLL);
                    if (records.isEmpty()) {
                        continue;
                    }
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> next = new LinkedHashMap<>();
                    for (ConsumerRecord<String, String> record : records) {
                        producer.send(
                                new ProducerRecord<>(
                                        to, record.partition(), record.key(), record.value()));
                        next.put(
                                new TopicPartition(from, record.partition()),
                                new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(next, consumer.groupMetadata());
                    if (round % 3 == 2) {
                        producer.abortTransaction();
                        var committed = consumer.committed(next.keySet());
                        next.keySet()
                                .forEach(
                                        partition ->
                                                consumer.seek(
                                                        partition,
                                                        committed.get(partition) == null
                                                                ? 0
                                                                : committed
                                                                        .get(partition)
                                                                        .offset()));
                    } else {
                        producer.commitTransaction();
                        handled += records.count();
                    }
                }
            }
        }
        try (KafkaConsumer<String, String> consumer =
                cluster.consumer("isolation.level", "read_committed")) {
            consumer.assign(List.of(new TopicPartition(to, 0), new TopicPartition(to, 1)));
            List<String> values =
                    new ArrayList<>(
                            Cluster.read(consumer, 200).stream()
                                    .map(ConsumerRecord::value)
                                    .toList());
            consumer.poll(Duration.ofMillis(300)).forEach(record -> values.add(record.value()));
            Cluster.same(200, values.size(), "records in the output");
            Cluster.same(200, new HashSet<>(values).size(), "different values in the output");
        }
    }

    private static void fencing(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        String id = Cluster.name("tx");
        try (KafkaProducer<String, String> first = cluster.producer("transactional.id", id);
                KafkaProducer<String, String> second = cluster.producer("transactional.id", id)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, "lost")).get();
            second.initTransactions();
            Throwable raised =
                    Cluster.failure(
                            () -> {
                                first.send(new ProducerRecord<>(topic, "refused")).get();
                                first.commitTransaction();
                                return null;
                            });
            Cluster.require(
                    raised instanceof ProducerFencedException
                            || raised instanceof InvalidProducerEpochException,
                    "fenced: " + raised);
            second.beginTransaction();
            second.send(new ProducerRecord<>(topic, "kept"));
            second.commitTransaction();
        }
        try (KafkaConsumer<String, String> consumer =
                cluster.consumer("isolation.level", "read_committed")) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            Cluster.same("kept", Cluster.read(consumer, 1).get(0).value(), "committed record");
        }
    }

    private static void timeout(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        try (KafkaProducer<String, String> producer =
                cluster.producer(
                        "transactional.id", Cluster.name("tx"), "transaction.timeout.ms", "1000")) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "late")).get();
            TopicPartition partition = new TopicPartition(topic, 0);
            try (KafkaConsumer<String, String> consumer =
                    cluster.consumer("isolation.level", "read_committed")) {
                Cluster.same(
                        0L,
                        consumer.endOffsets(List.of(partition)).get(partition),
                        "last stable offset before");
                Cluster.until(
                        "the broker aborts it",
                        () -> consumer.endOffsets(List.of(partition)).get(partition) == 2);
            }
            Cluster.failure(
                    () -> {
                        producer.send(new ProducerRecord<>(topic, "refused")).get();
                        producer.commitTransaction();
                        return null;
                    });
        }
        Cluster.failure(
                () -> {
                    try (KafkaProducer<String, String> producer =
                            cluster.producer(
                                    "transactional.id",
                                    Cluster.name("tx"),
                                    "transaction.timeout.ms",
                                    "1000000000")) {
                        producer.initTransactions();
                        return null;
                    }
                });
    }

    private static void lastStable(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        cluster.fill(topic, 1, 3);
        try (KafkaProducer<String, String> producer =
                        cluster.producer("transactional.id", Cluster.name("tx"));
                KafkaConsumer<String, String> committed =
                        cluster.consumer("isolation.level", "read_committed");
                KafkaConsumer<String, String> uncommitted = cluster.consumer()) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "open")).get();
            cluster.fill(topic, 1, 2);
            Cluster.same(
                    3L,
                    committed.endOffsets(List.of(partition)).get(partition),
                    "last stable offset");
            Cluster.same(
                    6L,
                    uncommitted.endOffsets(List.of(partition)).get(partition),
                    "high watermark");
            committed.assign(List.of(partition));
            Cluster.same(3, Cluster.read(committed, 3).size(), "records below it");
            Cluster.require(
                    committed.poll(Duration.ofMillis(200)).isEmpty(),
                    "a record above the last stable offset was read");
            producer.commitTransaction();
            Cluster.same(
                    "open",
                    Cluster.read(committed, 3).get(0).value(),
                    "first record after the commit");
        }
    }
}
