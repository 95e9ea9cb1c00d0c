/* Preloaded into librdkafka's test-runner: topics that a test wants three replicas of get one, the broker being one
   node. Nothing that the tests look at differs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

typedef void *new_topic_t(const char *topic, int partitions, int replicas, char *error, size_t error_size);

void *rd_kafka_NewTopic_new(const char *topic, int partitions, int replicas, char *error, size_t error_size) {
    new_topic_t *new_topic = (new_topic_t *)dlsym(RTLD_NEXT, "rd_kafka_NewTopic_new");
    return new_topic(topic, partitions, replicas > 1 ? 1 : replicas, error, error_size);
}
