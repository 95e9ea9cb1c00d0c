import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Function;

/** Share groups with the Java client (KIP-932). */
final class ShareChecks {
    private static final long LIMIT_NS = 30_000_000_000L;

    private ShareChecks() {}

    static Map<String, Main.Check> all() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put("share: latest, then implicit acknowledgement", ShareChecks::implicit);
        checks.put("share: release, reject and the delivery count", ShareChecks::explicit);
        checks.put("share: five releases end a record", ShareChecks::releases);
        checks.put("share: a lock runs out, a renewed one does not", ShareChecks::locks);
        checks.put("share: two members get different records", ShareChecks::members);
        checks.put("share: close gives records back", ShareChecks::closes);
        checks.put("share: a limit of one record", ShareChecks::recordLimit);
        checks.put("share: committed reads leave out an aborted transaction", ShareChecks::committed);
        checks.put("share: DeleteRecords under a window", ShareChecks::deletedRecords);
        checks.put("share: a rejected record goes to the dead letter topic", ShareChecks::deadLetter);
        return checks;
    }

    /** Returns a consumer of a group that begins with the first record, unless told otherwise. */
    private static KafkaShareConsumer<String, String> consumer(
            Cluster cluster, String group, String topic, String... settings) {
        Map<String, Object> all = new HashMap<>();
        for (int at = 0; at < settings.length; at += 2) {
            all.put(settings[at], settings[at + 1]);
        }
        all.put("bootstrap.servers", cluster.bootstrap);
        all.put("group.id", group);
        KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(all, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    private static String group(Cluster cluster, String... configs) throws Exception {
        String group = Cluster.name("share");
        configure(cluster, group, "share.auto.offset.reset", "earliest");
        for (int at = 0; at < configs.length; at += 2) {
            configure(cluster, group, configs[at], configs[at + 1]);
        }
        return group;
    }

    private static void configure(Cluster cluster, String group, String name, String value)
            throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        AlterConfigOp set =
                new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        cluster.admin.incrementalAlterConfigs(Map.of(resource, List.of(set))).all().get();
    }

    /** Polls until so many records have come, and answers each. */
    private static List<ConsumerRecord<String, String>> read(
            KafkaShareConsumer<String, String> consumer,
            int count,
            Function<ConsumerRecord<String, String>, AcknowledgeType> answer) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        long end = System.nanoTime() + LIMIT_NS;
        while (records.size() < count) {
            consumer.poll(Cluster.POLL)
                    .forEach(
                            record -> {
                                records.add(record);
                                if (answer != null) {
                                    consumer.acknowledge(record, answer.apply(record));
                                }
                            });
            Cluster.require(
                    System.nanoTime() < end, "only " + records.size() + " of " + count + " records");
        }
        return records;
    }

    private static void commit(KafkaShareConsumer<String, String> consumer) {
        Map<TopicIdPartition, Optional<KafkaException>> outcome = consumer.commitSync();
        outcome.forEach(
                (partition, error) ->
                        Cluster.require(error.isEmpty(), partition + ": " + error.orElse(null)));
    }

    private static boolean isAssigned(Cluster cluster, String group) throws Exception {
        return cluster.admin.describeShareGroups(List.of(group)).all().get().get(group).members().stream()
                .anyMatch(member -> !member.assignment().topicPartitions().isEmpty());
    }

    private static void nothing(KafkaShareConsumer<String, String> consumer) {
        for (int poll = 0; poll < 10; poll++) {
            Cluster.same(0, consumer.poll(Cluster.POLL).count(), "records that were ended");
        }
    }

    private static final String[] EXPLICIT = {"share.acknowledgement.mode", "explicit"};

    private static void implicit(Cluster cluster) throws Exception {
        String topic = cluster.topic(2);
        String group = Cluster.name("share");
        cluster.fill(topic, 2, 10);
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (KafkaShareConsumer<String, String> consumer = consumer(cluster, group, topic)) {
            consumer.setAcknowledgementCommitCallback((offsets, error) -> failure.compareAndSet(null, error));
            // Kafka assigns partitions at the second heartbeat; the latest offset is that of the first fetch.
            Cluster.until(
                    "an assignment",
                    () -> consumer.poll(Cluster.POLL).isEmpty() && isAssigned(cluster, group));
            nothing(consumer);
            cluster.fill(topic, 2, 100);
            Set<String> values = new HashSet<>();
            read(consumer, 100, null).forEach(record -> values.add(record.value()));
            Cluster.same(100, values.size(), "different values");
            commit(consumer);
        }
        Cluster.same(null, failure.get(), "failure of an acknowledgement");
        try (KafkaShareConsumer<String, String> consumer = consumer(cluster, group, topic)) {
            nothing(consumer);
        }
    }

    private static void explicit(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        cluster.fill(topic, 1, 6);
        try (KafkaShareConsumer<String, String> consumer =
                consumer(cluster, group(cluster), topic, EXPLICIT)) {
            List<ConsumerRecord<String, String>> first =
                    read(
                            consumer,
                            6,
                            record ->
                                    switch ((int) record.offset() % 3) {
                                        case 0 -> AcknowledgeType.ACCEPT;
                                        case 1 -> AcknowledgeType.RELEASE;
                                        default -> AcknowledgeType.REJECT;
                                    });
            Cluster.same((short) 1, first.get(0).deliveryCount().orElseThrow(), "first delivery");
            commit(consumer);
            List<ConsumerRecord<String, String>> again =
                    read(consumer, 2, record -> AcknowledgeType.ACCEPT);
            Cluster.same(List.of(1L, 4L), again.stream().map(ConsumerRecord::offset).toList(), "offsets");
            Cluster.same((short) 2, again.get(0).deliveryCount().orElseThrow(), "second delivery");
            commit(consumer);
            nothing(consumer);
        }
    }

    private static void releases(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        cluster.fill(topic, 1, 1);
        try (KafkaShareConsumer<String, String> consumer =
                consumer(cluster, group(cluster), topic, EXPLICIT)) {
            for (short delivery = 1; delivery <= 5; delivery++) {
                ConsumerRecord<String, String> record =
                        read(consumer, 1, each -> AcknowledgeType.RELEASE).get(0);
                Cluster.same(delivery, record.deliveryCount().orElseThrow(), "delivery count");
                commit(consumer);
            }
            nothing(consumer);
        }
    }

    private static void locks(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        cluster.fill(topic, 1, 2);
        String group = group(cluster, "share.record.lock.duration.ms", "15000");
        try (KafkaShareConsumer<String, String> holder = consumer(cluster, group, topic, EXPLICIT);
                KafkaShareConsumer<String, String> other =
                        consumer(cluster, group, topic, EXPLICIT)) {
            List<ConsumerRecord<String, String>> held = new ArrayList<>();
            long end = System.nanoTime() + LIMIT_NS;
            while (held.size() < 2) {
                holder.poll(Cluster.POLL).forEach(held::add);
                Cluster.require(System.nanoTime() < end, "no records");
            }
            Cluster.same(
                    Optional.of(15_000),
                    holder.acquisitionLockTimeoutMs(),
                    "lock duration that the consumer knows");
            long acquired = System.nanoTime();
            List<ConsumerRecord<String, String>> expired =
                    read(other, 2, record -> AcknowledgeType.ACCEPT);
            // Records that return earlier were held in a handler that was killed: locks are not stored.
            boolean early = System.nanoTime() - acquired < TimeUnit.SECONDS.toNanos(13);
            Cluster.same((short) (early ? 1 : 2), expired.get(0).deliveryCount().orElseThrow(), "delivery count");
            commit(other);
        }
    }

    private static void members(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        String group = group(cluster);
        try (KafkaShareConsumer<String, String> one = consumer(cluster, group, topic, "max.poll.records", "10");
                KafkaShareConsumer<String, String> two =
                        consumer(cluster, group, topic, "max.poll.records", "10")) {
            try (KafkaProducer<String, String> producer = cluster.producer("batch.size", "1")) {
                for (int number = 0; number < 200; number++) {
                    producer.send(new ProducerRecord<>(topic, 0, "key", "" + number));
                }
            }
            List<String> values = new ArrayList<>();
            Set<String> ofOne = new HashSet<>();
            Set<String> ofTwo = new HashSet<>();
            long end = System.nanoTime() + LIMIT_NS;
            while (values.size() < 200) {
                one.poll(Cluster.POLL).forEach(record -> ofOne.add(record.value()));
                two.poll(Cluster.POLL).forEach(record -> ofTwo.add(record.value()));
                values.clear();
                values.addAll(ofOne);
                values.addAll(ofTwo);
                Cluster.require(System.nanoTime() < end, "only " + values.size() + " of 200 values");
            }
            Cluster.same(200, new HashSet<>(values).size(), "different values");
            Cluster.require(!ofOne.isEmpty() && !ofTwo.isEmpty(), "one member has all records");
            commit(one);
            commit(two);
        }
    }

    private static void closes(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        String group = group(cluster);
        cluster.fill(topic, 1, 20);
        try (KafkaShareConsumer<String, String> consumer =
                consumer(cluster, group, topic, "share.acknowledgement.mode", "explicit")) {
            long end = System.nanoTime() + LIMIT_NS;
            int found = 0;
            while (found < 20) {
                found += consumer.poll(Cluster.POLL).count();
                Cluster.require(System.nanoTime() < end, "no records");
            }
        }
        try (KafkaShareConsumer<String, String> consumer = consumer(cluster, group, topic)) {
            long began = System.nanoTime();
            List<ConsumerRecord<String, String>> records = read(consumer, 20, null);
            Cluster.require(System.nanoTime() - began < 15_000_000_000L, "only after the lock");
            Cluster.same((short) 2, records.get(0).deliveryCount().orElseThrow(), "delivery count");
            commit(consumer);
        }
    }

    private static void recordLimit(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        cluster.fill(topic, 1, 20);
        try (KafkaShareConsumer<String, String> consumer =
                consumer(
                        cluster,
                        group(cluster),
                        topic,
                        "share.acquire.mode",
                        "record_limit",
                        "max.poll.records",
                        "1")) {
            List<Long> offsets = new ArrayList<>();
            long end = System.nanoTime() + LIMIT_NS;
            while (offsets.size() < 20) {
                List<Long> polled = new ArrayList<>();
                consumer.poll(Cluster.POLL).forEach(record -> polled.add(record.offset()));
                Cluster.require(polled.size() <= 1, "more than one record: " + polled);
                offsets.addAll(polled);
                Cluster.require(System.nanoTime() < end, "only " + offsets);
            }
            Cluster.same(20, new HashSet<>(offsets).size(), "different offsets");
            commit(consumer);
        }
    }

    private static void committed(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        String group = group(cluster, "share.isolation.level", "read_committed");
        try (KafkaProducer<String, String> producer =
                cluster.producer("transactional.id", Cluster.name("txn"))) {
            producer.initTransactions();
            for (int round = 0; round < 3; round++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, "key", "aborted"));
                producer.flush();
                producer.abortTransaction();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, "key", "committed"));
                producer.commitTransaction();
            }
        }
        try (KafkaShareConsumer<String, String> consumer = consumer(cluster, group, topic)) {
            List<String> values =
                    read(consumer, 3, null).stream().map(ConsumerRecord::value).toList();
            Cluster.same(List.of("committed", "committed", "committed"), values, "values");
            commit(consumer);
            nothing(consumer);
        }
    }

    private static void deletedRecords(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        cluster.fill(topic, 1, 10);
        try (KafkaShareConsumer<String, String> consumer =
                consumer(cluster, group(cluster), topic, EXPLICIT)) {
            read(consumer, 10, record -> AcknowledgeType.RELEASE);
            cluster.admin
                    .deleteRecords(
                            Map.of(new TopicPartition(topic, 0), RecordsToDelete.beforeOffset(10)))
                    .all()
                    .get();
            commit(consumer);
            cluster.fill(topic, 1, 3);
            List<Long> offsets =
                    read(consumer, 3, record -> AcknowledgeType.ACCEPT).stream()
                            .map(ConsumerRecord::offset)
                            .toList();
            Cluster.same(List.of(10L, 11L, 12L), offsets, "offsets");
            commit(consumer);
        }
    }

    private static void deadLetter(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        String letters = Cluster.name("dlq.letters");
        cluster.admin
                .createTopics(
                        List.of(
                                new org.apache.kafka.clients.admin.NewTopic(letters, 1, (short) 1)
                                        .configs(Map.of("errors.deadletterqueue.group.enable", "true"))))
                .all()
                .get();
        String group =
                group(
                        cluster,
                        "errors.deadletterqueue.topic.name",
                        letters,
                        "errors.deadletterqueue.copy.record.enable",
                        "true");
        cluster.fill(topic, 1, 3);
        try (KafkaShareConsumer<String, String> consumer =
                consumer(cluster, group, topic, EXPLICIT)) {
            read(
                    consumer,
                    3,
                    record ->
                            record.offset() == 1 ? AcknowledgeType.REJECT : AcknowledgeType.ACCEPT);
            commit(consumer);
        }
        try (var reader = cluster.consumer("group.id", Cluster.name("reader"))) {
            reader.subscribe(List.of(letters));
            ConsumerRecord<String, String> letter = Cluster.read(reader, 1).get(0);
            Cluster.same("1", letter.value(), "value");
            Cluster.same(
                    "1",
                    new String(letter.headers().lastHeader("__dlq.errors.offset").value()),
                    "offset in the headers");
        }
    }
}
