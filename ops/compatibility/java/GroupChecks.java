import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;

import java.time.Duration;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** Consumer groups of both protocols with the Java client. */
final class GroupChecks {
    private static final String COOPERATIVE =
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";
    private static final String RANGE = "org.apache.kafka.clients.consumer.RangeAssignor";

    private GroupChecks() {}

    static Map<String, Main.Check> all() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put(
                "group: two members share, leave and resume",
                c ->
                        share(
                                c,
                                "partition.assignment.strategy",
                                RANGE,
                                "session.timeout.ms",
                                "10000"));
        checks.put(
                "group: cooperative-sticky",
                c ->
                        share(
                                c,
                                "partition.assignment.strategy",
                                COOPERATIVE,
                                "session.timeout.ms",
                                "10000"));
        checks.put(
                "group: static member returns without a rebalance",
                c -> staticMember(c, "group.protocol", "classic"));
        checks.put("group: commit with metadata", GroupChecks::metadata);
        checks.put("group: pattern subscription sees a new topic", GroupChecks::pattern);
        checks.put(
                "KIP-848 group: uniform",
                c -> share(c, "group.protocol", "consumer", "group.remote.assignor", "uniform"));
        checks.put(
                "KIP-848 group: range",
                c -> share(c, "group.protocol", "consumer", "group.remote.assignor", "range"));
        checks.put(
                "KIP-848 group: static member returns",
                c -> staticMember(c, "group.protocol", "consumer"));
        checks.put("KIP-848 group: regex is resolved by the broker", GroupChecks::brokerPattern);
        checks.put("KIP-848 group: a classic group is converted", GroupChecks::upgrade);
        checks.put(
                "group: an empty group changes its protocol and keeps its offsets",
                GroupChecks::emptyUpgrade);
        return checks;
    }

    /**
     * Two members get two partitions each; one leaves; a third continues where the committed
     * offsets stand.
     */
    private static void share(Cluster cluster, String... settings) throws Exception {
        String topic = cluster.topic(4);
        String[] all =
                Cluster.with(settings, "group.id", Cluster.name("group"), "max.poll.records", "50");
        cluster.fill(topic, 4, 400);
        KafkaConsumer<String, String> first = cluster.consumer(all);
        KafkaConsumer<String, String> second = cluster.consumer(all);
        Set<String> seen = new HashSet<>();
        try (first) {
            try (second) {
                first.subscribe(List.of(topic));
                second.subscribe(List.of(topic));
                Cluster.pollUntil(
                        "two partitions each",
                        List.of(first, second),
                        () -> first.assignment().size() == 2 && second.assignment().size() == 2);
                Set<TopicPartition> both = new HashSet<>(first.assignment());
                both.addAll(second.assignment());
                Cluster.same(4, both.size(), "partitions of both");
                for (KafkaConsumer<String, String> member : List.of(first, second)) {
                    member.seekToBeginning(member.assignment());
                }
                long end = System.nanoTime() + 30_000_000_000L;
                while (seen.size() < 400) {
                    for (KafkaConsumer<String, String> member : List.of(first, second)) {
                        member.poll(Cluster.POLL).forEach(record -> seen.add(record.value()));
                        member.commitSync();
                    }
                    Cluster.require(
                            System.nanoTime() < end, "only " + seen.size() + " of 400 values");
                }
            }
            Cluster.pollUntil(
                    "the member that stays has all",
                    List.of(first),
                    () -> first.assignment().size() == 4);
        }
        cluster.fill(topic, 4, 4);
        try (KafkaConsumer<String, String> third = cluster.consumer(all)) {
            third.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> records = Cluster.read(third, 4);
            Cluster.same(
                    Set.of("0", "1", "2", "3"),
                    records.stream().map(ConsumerRecord::value).collect(Collectors.toSet()),
                    "values after the committed");
            Cluster.same(4, records.size(), "records after the committed");
        }
    }

    private static void staticMember(Cluster cluster, String... settings) throws Exception {
        String topic = cluster.topic(4);
        String[] all = Cluster.with(settings, "group.id", Cluster.name("group"));
        boolean classic = settings[1].equals("classic");
        String[] session = classic ? new String[] {"session.timeout.ms", "30000"} : new String[] {};
        Counting changes = new Counting();
        try (KafkaConsumer<String, String> stays =
                cluster.consumer(
                        Cluster.with(Cluster.with(all, session), "group.instance.id", "a"))) {
            stays.subscribe(List.of(topic), changes);
            KafkaConsumer<String, String> leaves =
                    cluster.consumer(
                            Cluster.with(Cluster.with(all, session), "group.instance.id", "b"));
            leaves.subscribe(List.of(topic));
            Cluster.pollUntil(
                    "two partitions each",
                    List.of(stays, leaves),
                    () -> stays.assignment().size() == 2 && leaves.assignment().size() == 2);
            Set<TopicPartition> before = Set.copyOf(leaves.assignment());
            int rebalances = changes.assigned;
            leaves.close();
            for (int poll = 0; poll < 20; poll++) {
                stays.poll(Duration.ofMillis(50));
            }
            Cluster.same(2, stays.assignment().size(), "partitions of the one that stayed");
            try (KafkaConsumer<String, String> returned =
                    cluster.consumer(
                            Cluster.with(Cluster.with(all, session), "group.instance.id", "b"))) {
                returned.subscribe(List.of(topic));
                Cluster.pollUntil(
                        "the returned has its partitions",
                        List.of(stays, returned),
                        () -> returned.assignment().size() == 2);
                Cluster.same(
                        before, Set.copyOf(returned.assignment()), "partitions of the returned");
                Cluster.same(rebalances, changes.assigned, "assignments to the one that stayed");
            }
        }
    }

    private static void metadata(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        TopicPartition partition = new TopicPartition(topic, 0);
        String group = Cluster.name("group");
        try (KafkaConsumer<String, String> consumer = cluster.consumer("group.id", group)) {
            consumer.assign(List.of(partition));
            consumer.commitSync(Map.of(partition, new OffsetAndMetadata(7, "note é")));
            OffsetAndMetadata found = consumer.committed(Set.of(partition)).get(partition);
            Cluster.same(7L, found.offset(), "offset");
            Cluster.same("note é", found.metadata(), "metadata");
        }
    }

    private static void pattern(Cluster cluster) throws Exception {
        String prefix = Cluster.name("pattern");
        createNamed(cluster, prefix + "-1");
        try (KafkaConsumer<String, String> consumer =
                cluster.consumer("group.id", Cluster.name("group"), "metadata.max.age.ms", "500")) {
            consumer.subscribe(Pattern.compile(prefix + ".*"));
            Cluster.pollUntil(
                    "the first topic", List.of(consumer), () -> consumer.assignment().size() == 1);
            createNamed(cluster, prefix + "-2");
            Cluster.pollUntil(
                    "the second topic", List.of(consumer), () -> consumer.assignment().size() == 2);
        }
    }

    private static void brokerPattern(Cluster cluster) throws Exception {
        String prefix = Cluster.name("pattern");
        createNamed(cluster, prefix + "-1");
        createNamed(cluster, "other-" + prefix);
        try (KafkaConsumer<String, String> consumer =
                cluster.consumer(
                        "group.id",
                        Cluster.name("group"),
                        "group.protocol",
                        "consumer",
                        "metadata.max.age.ms",
                        "500")) {
            consumer.subscribe(new SubscriptionPattern(prefix + ".*"));
            Cluster.pollUntil(
                    "the first topic", List.of(consumer), () -> consumer.assignment().size() == 1);
            createNamed(cluster, prefix + "-2");
            Cluster.pollUntil(
                    "the second topic", List.of(consumer), () -> consumer.assignment().size() == 2);
        }
    }

    /**
     * A classic group whose members are replaced one by one by members of the new protocol keeps
     * its offsets.
     */
    private static void upgrade(Cluster cluster) throws Exception {
        String topic = cluster.topic(4);
        String group = Cluster.name("group");
        cluster.fill(topic, 4, 8);
        KafkaConsumer<String, String> old = cluster.consumer("group.id", group);
        old.subscribe(List.of(topic));
        Cluster.read(old, 8);
        old.commitSync();
        try (KafkaConsumer<String, String> modern =
                cluster.consumer("group.id", group, "group.protocol", "consumer")) {
            modern.subscribe(List.of(topic));
            Cluster.pollUntil(
                    "both protocols in one group",
                    List.of(old, modern),
                    () -> old.assignment().size() == 2 && modern.assignment().size() == 2);
            old.close();
            Cluster.pollUntil(
                    "the new member has all",
                    List.of(modern),
                    () -> modern.assignment().size() == 4);
            cluster.fill(topic, 4, 4);
            Cluster.same(4, Cluster.read(modern, 4).size(), "records after the committed");
        }
    }

    /**
     * Offsets that members of one protocol have committed are those of the other's members once the
     * group is empty.
     */
    private static void emptyUpgrade(Cluster cluster) throws Exception {
        String topic = cluster.topic(2);
        String group = Cluster.name("group");
        int expected = 0;
        for (String protocol : List.of("classic", "consumer", "classic", "consumer")) {
            cluster.fill(topic, 2, 10);
            try (KafkaConsumer<String, String> consumer =
                    cluster.consumer("group.id", group, "group.protocol", protocol)) {
                consumer.subscribe(List.of(topic));
                Cluster.read(consumer, 10);
                expected += 5;
                for (TopicPartition partition : consumer.assignment()) {
                    Cluster.same(
                            (long) expected, consumer.position(partition), "position, " + protocol);
                }
                consumer.commitSync();
            }
        }
    }

    private static void createNamed(Cluster cluster, String name) throws Exception {
        cluster.admin
                .createTopics(
                        List.of(new org.apache.kafka.clients.admin.NewTopic(name, 1, (short) 1)))
                .all()
                .get();
    }

    private static final class Counting implements ConsumerRebalanceListener {
        int assigned;

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assigned++;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
    }
}
