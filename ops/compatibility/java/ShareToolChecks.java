import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Kafka's command-line tools for share groups, by the names of their scripts. */
final class ShareToolChecks {
    private static final String TOOLS = "org.apache.kafka.tools.";
    private static final String SHARE_GROUPS = TOOLS + "consumer.group.ShareGroupCommand";

    private ShareToolChecks() {}

    static Map<String, Main.Check> all() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put("kafka-share-groups: list, describe", ShareToolChecks::describe);
        checks.put("kafka-share-groups: reset, delete offsets, delete", ShareToolChecks::reset);
        checks.put("kafka-console-share-consumer", ShareToolChecks::consume);
        checks.put(
                "kafka-console-consumer: formatters of share groups", ShareToolChecks::formatters);
        return checks;
    }

    /** A group that reads a topic of ten records from the beginning. */
    private static String group(Cluster cluster) throws Exception {
        String group = Cluster.name("share");
        Tool.run(
                TOOLS + "ConfigCommand",
                ToolChecks.at(
                        cluster,
                        "--alter",
                        "--group",
                        group,
                        "--add-config",
                        "share.auto.offset.reset=earliest"));
        return group;
    }

    private static KafkaShareConsumer<String, String> reader(
            Cluster cluster, String group, String topic) throws Exception {
        KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(
                        Map.of(
                                "bootstrap.servers",
                                cluster.bootstrap,
                                "group.id",
                                group,
                                "client.id",
                                "seen-by-tool"),
                        new StringDeserializer(),
                        new StringDeserializer());
        consumer.subscribe(List.of(topic));
        int[] count = {0};
        Cluster.until(
                "ten records",
                () -> {
                    count[0] += consumer.poll(Duration.ofMillis(200)).count();
                    return count[0] >= 10;
                });
        consumer.commitSync();
        return consumer;
    }

    private static void describe(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        cluster.fill(topic, 1, 10);
        String group = group(cluster);
        try (KafkaShareConsumer<String, String> consumer = reader(cluster, group, topic)) {
            Cluster.same(1, consumer.subscription().size(), "topics of the consumer");
            ToolChecks.contains(run(cluster, "--list", "--state"), group + "\\s+Stable");
            // Kafka shows the start offset that was stored with the last acknowledgement.
            ToolChecks.contains(
                    run(cluster, "--describe", "--group", group),
                    group + "\\s+" + topic + "\\s+0\\s+(0|10)\\s+0");
            ToolChecks.contains(
                    run(cluster, "--describe", "--group", group, "--members", "--verbose"),
                    "seen-by-tool",
                    topic + ":0");
            ToolChecks.contains(
                    run(cluster, "--describe", "--group", group, "--state"), group + ".*Stable\\s+1");
            ToolChecks.contains(
                    Tool.run(TOOLS + "GroupsCommand", ToolChecks.at(cluster, "--list", "--share")),
                    group + "\\s+Share\\s+share");
        }
    }

    /** S116: an empty group, ListOffsets and AlterShareGroupOffsets. */
    private static void reset(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        cluster.fill(topic, 1, 10);
        String group = group(cluster);
        reader(cluster, group, topic).close();
        String[] reset = {"--reset-offsets", "--group", group, "--topic", topic, "--execute"};
        ToolChecks.contains(
                Tool.run(SHARE_GROUPS, ToolChecks.at(cluster, Cluster.with(reset, "--to-earliest"))),
                group + "\\s+" + topic + "\\s+0\\s+0");
        ToolChecks.contains(
                run(cluster, "--describe", "--group", group), topic + "\\s+0\\s+0\\s+10");
        reader(cluster, group, topic).close();
        ToolChecks.contains(
                run(cluster, "--delete-offsets", "--group", group, "--topic", topic), "Successful");
        ToolChecks.contains(run(cluster, "--delete", "--group", group), "successful");
        Cluster.require(!run(cluster, "--list").contains(group), "still listed");
    }

    private static void consume(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        cluster.fill(topic, 1, 10);
        ToolChecks.contains(
                Tool.run(
                        TOOLS + "consumer.ConsoleShareConsumer",
                        ToolChecks.at(
                                cluster,
                                "--topic",
                                topic,
                                "--group",
                                group(cluster),
                                "--max-messages",
                                "10",
                                "--timeout-ms",
                                "20000")),
                "Processed a total of 10 messages");
    }

    private static void formatters(Cluster cluster) throws Exception {
        String topic = cluster.topic(1);
        cluster.fill(topic, 1, 10);
        String group = group(cluster);
        reader(cluster, group, topic).close();
        Map<String, String> formatters =
                Map.of(
                        "__consumer_offsets", "ShareGroupMessageFormatter",
                        "__share_group_state", "group.share.ShareGroupStateMessageFormatter");
        for (Map.Entry<String, String> each : formatters.entrySet()) {
            ToolChecks.contains(
                    Tool.run(
                            TOOLS + "consumer.ConsoleConsumer",
                            ToolChecks.at(
                                    cluster,
                                    "--topic",
                                    each.getKey(),
                                    "--from-beginning",
                                    "--timeout-ms",
                                    "3000",
                                    "--formatter",
                                    TOOLS + "consumer." + each.getValue())),
                    group);
        }
    }

    private static String run(Cluster cluster, String... arguments) throws Exception {
        return Tool.run(SHARE_GROUPS, ToolChecks.at(cluster, arguments));
    }
}
