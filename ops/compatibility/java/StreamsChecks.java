import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

import java.nio.file.Files;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;

/** Kafka Streams: words are counted with exactly_once_v2, in two lives of the application. */
final class StreamsChecks {
    private static final int LINES = 600;

    private StreamsChecks() {}

    static Map<String, Main.Check> all() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put("exactly_once_v2: word count over a restart", StreamsChecks::wordCount);
        checks.put("group.protocol=streams is refused", StreamsChecks::streamsProtocol);
        return checks;
    }

    /** Streams groups are not served: the error of a Kafka with this protocol disabled. */
    private static void streamsProtocol(Cluster cluster) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(cluster.topic(1)).foreach((key, value) -> {});
        Properties settings = new Properties();
        settings.put("application.id", Cluster.name("streams"));
        settings.put("bootstrap.servers", cluster.bootstrap);
        settings.put("group.protocol", "streams");
        settings.put("state.dir", Files.createTempDirectory("streams").toString());
        AtomicReference<Throwable> raised = new AtomicReference<>();
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setUncaughtExceptionHandler(
                    failure -> {
                        raised.set(failure);
                        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
                    });
            streams.start();
            Cluster.until("the error", () -> raised.get() != null);
        }
        String text = raised.get() + " " + raised.get().getCause();
        Cluster.require(text.contains("does not support the STREAMS group protocol"), text);
    }

    private static void wordCount(Cluster cluster) throws Exception {
        String from = cluster.topic(2);
        String to = cluster.topic(2);
        String application = Cluster.name("streams");
        Map<String, Long> expected = new HashMap<>();
        for (int life = 0; life < 2; life++) {
            KafkaStreams streams = streams(cluster, application, from, to);
            try {
                streams.setUncaughtExceptionHandler(
                        raised -> StreamThreadExceptionResponse.REPLACE_THREAD);
                streams.start();
                try (KafkaProducer<String, String> producer = cluster.producer("linger.ms", "2")) {
                    for (int number = 0; number < LINES; number++) {
                        String line = "every word " + number % 7 + " counts";
                        producer.send(new ProducerRecord<>(from, number % 2, null, line));
                        Arrays.stream(line.split(" "))
                                .forEach(word -> expected.merge(word, 1L, Long::sum));
                        Thread.sleep(number % 20 == 0 ? 100 : 0);
                    }
                }
                Cluster.until(
                        "all words of life " + life, () -> expected.equals(newest(cluster, to)));
            } finally {
                // Otherwise its members would keep their tasks until their sessions end.
                streams.close(
                        CloseOptions.groupMembershipOperation(
                                CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
            }
        }
        long sum = 0;
        try (KafkaConsumer<String, String> consumer = committed(cluster, to)) {
            Map<String, Long> last = new HashMap<>();
            for (ConsumerRecord<String, String> record : drain(consumer)) {
                long count = Long.parseLong(record.value());
                Cluster.require(
                        count > last.getOrDefault(record.key(), 0L),
                        record.key() + " went from " + last.get(record.key()) + " to " + count);
                last.put(record.key(), count);
            }
            sum = last.values().stream().mapToLong(Long::longValue).sum();
        }
        Cluster.same(4L * 2 * LINES, sum, "words counted");
    }

    private static KafkaStreams streams(Cluster cluster, String application, String from, String to)
            throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(from);
        lines.flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word)
                .count(Materialized.as("counts"))
                .toStream()
                .mapValues(count -> count.toString())
                .to(to, Produced.with(Serdes.String(), Serdes.String()));
        Properties settings = new Properties();
        settings.put("application.id", application);
        settings.put("bootstrap.servers", cluster.bootstrap);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "100");
        settings.put("num.stream.threads", "2");
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        settings.put("state.dir", Files.createTempDirectory("streams").toString());
        settings.put("consumer.auto.offset.reset", "earliest");
        return new KafkaStreams(builder.build(), settings);
    }

    private static KafkaConsumer<String, String> committed(Cluster cluster, String topic) {
        KafkaConsumer<String, String> consumer =
                cluster.consumer("isolation.level", "read_committed");
        consumer.assign(List.of(new TopicPartition(topic, 0), new TopicPartition(topic, 1)));
        return consumer;
    }

    /** Everything up to the last stable offset. */
    private static List<ConsumerRecord<String, String>> drain(
            KafkaConsumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> records = new java.util.ArrayList<>();
        Map<TopicPartition, Long> ends = consumer.endOffsets(consumer.assignment());
        while (ends.entrySet().stream()
                .anyMatch(
                        end ->
                                consumer.position(end.getKey(), Duration.ofSeconds(10))
                                        < end.getValue())) {
            consumer.poll(Cluster.POLL).forEach(records::add);
        }
        return records;
    }

    private static Map<String, Long> newest(Cluster cluster, String topic) {
        Map<String, Long> counts = new HashMap<>();
        try (KafkaConsumer<String, String> consumer = committed(cluster, topic)) {
            drain(consumer)
                    .forEach(record -> counts.put(record.key(), Long.parseLong(record.value())));
        }
        return counts;
    }
}
