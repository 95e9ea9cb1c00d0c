import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.Callable;

/** The broker under test, and the clients of it that every check needs. */
final class Cluster implements AutoCloseable {
    static final Duration POLL = Duration.ofMillis(100);
    final String bootstrap;
    final Admin admin;

    Cluster(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin =
                Admin.create(
                        Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 30_000));
    }

    @Override
    public void close() {
        admin.close(Duration.ofSeconds(1));
    }

    static String name(String prefix) {
        return prefix + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    String topic(int partitions, String... configs) throws Exception {
        String topic = name("topic");
        NewTopic wanted = new NewTopic(topic, partitions, (short) 1).configs(pairs(configs));
        admin.createTopics(List.of(wanted)).all().get();
        return topic;
    }

    KafkaProducer<String, String> producer(String... settings) {
        Map<String, Object> all = new HashMap<>(pairs(settings));
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    KafkaConsumer<String, String> consumer(String... settings) {
        Map<String, Object> all =
                new HashMap<>(
                        Map.of("auto.offset.reset", "earliest", "enable.auto.commit", "false"));
        all.putAll(pairs(settings));
        all.put("bootstrap.servers", bootstrap);
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    /**
     * Sends values 0..count-1, spread over the partitions in turns; returns once all are
     * acknowledged.
     */
    void fill(String topic, int partitions, int count) {
        try (KafkaProducer<String, String> producer = producer()) {
            for (int number = 0; number < count; number++) {
                producer.send(
                        new ProducerRecord<>(
                                topic, number % partitions, "key-" + number, "" + number));
            }
            producer.flush();
        }
    }

    /** Polls until `count` records have come; fails when that takes longer than 30 s. */
    static List<ConsumerRecord<String, String>> read(Consumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        long end = System.nanoTime() + 30_000_000_000L;
        while (records.size() < count) {
            consumer.poll(POLL).forEach(records::add);
            require(
                    System.nanoTime() < end,
                    "only " + records.size() + " of " + count + " records within 30 s");
        }
        return records;
    }

    /**
     * Polls every consumer in turns until the condition holds; fails when that takes longer than 30
     * s.
     */
    static void pollUntil(
            String what, List<? extends Consumer<?, ?>> consumers, Callable<Boolean> condition)
            throws Exception {
        long end = System.nanoTime() + 30_000_000_000L;
        while (!condition.call()) {
            for (Consumer<?, ?> consumer : consumers) {
                consumer.poll(Duration.ofMillis(30));
            }
            if (consumers.isEmpty()) {
                Thread.sleep(20);
            }
            require(System.nanoTime() < end, "not within 30 s: " + what);
        }
    }

    static void until(String what, Callable<Boolean> condition) throws Exception {
        pollUntil(what, List.of(), condition);
    }

    static void require(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static void same(Object expected, Object found, String what) {
        require(
                Objects.equals(expected, found),
                what + ": expected " + expected + ", found " + found);
    }

    /** Runs something that must fail, and returns the innermost cause. */
    static Throwable failure(Callable<?> action) {
        try {
            action.call();
        } catch (Exception raised) {
            Throwable cause = raised;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            return cause;
        }
        throw new AssertionError("nothing was raised");
    }

    static void fails(Class<? extends Throwable> expected, Callable<?> action) {
        Throwable cause = failure(action);
        require(
                expected.isInstance(cause),
                "expected " + expected.getSimpleName() + ", found " + cause);
    }

    static Map<String, String> pairs(String... words) {
        Map<String, String> map = new HashMap<>();
        for (int at = 0; at < words.length; at += 2) {
            map.put(words[at], words[at + 1]);
        }
        return map;
    }

    static String[] with(String[] settings, String... more) {
        List<String> all = new ArrayList<>(List.of(settings));
        all.addAll(List.of(more));
        return all.toArray(String[]::new);
    }
}
