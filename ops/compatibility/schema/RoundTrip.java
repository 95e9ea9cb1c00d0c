import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Reads messages with Kafka's own classes and writes them again. A request on stdin: the name of the
 * message, its version and its bytes; the response on stdout: its bytes as Kafka writes them and its
 * values as JSON (of records their size), or no bytes and the failure. Strings and bytes follow their length in four bytes.
 */
public final class RoundTrip {
    private static final String[] PLACES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
    };
    private static final Map<String, Class<?>> CLASSES = new HashMap<>();

    private RoundTrip() {
    }

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        while (true) {
            int size = in.readInt();
            if (size < 0) {
                out.flush();
                return;
            }
            String name = new String(in.readNBytes(size), StandardCharsets.UTF_8);
            short version = in.readShort();
            byte[] body = in.readNBytes(in.readInt());
            byte[] written = {};
            String json;
            try {
                Message message = (Message) classOf(name).getDeclaredConstructor().newInstance();
                message.read(new ByteBufferAccessor(ByteBuffer.wrap(body)), version);
                written = MessageUtil.toByteBufferAccessor(message, version).buffer().array();
                json = json(message, version).toString();
            } catch (InvocationTargetException failure) {
                json = String.valueOf(failure.getCause());
            } catch (ReflectiveOperationException | RuntimeException failure) {
                json = failure.toString();
            }
            put(out, written);
            put(out, json.getBytes(StandardCharsets.UTF_8));
        }
    }

    private static void put(DataOutputStream out, byte[] bytes) throws IOException {
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    private static JsonNode json(Message message, short version) throws ReflectiveOperationException {
        Class<?> type = message.getClass();
        return (JsonNode) classNamed(type.getName() + "JsonConverter")
            .getMethod("write", type, short.class, boolean.class)
            .invoke(null, message, version, false);
    }

    private static Class<?> classOf(String name) throws ClassNotFoundException {
        for (String place : PLACES) {
            try {
                return classNamed(String.format(place, name));
            } catch (ClassNotFoundException absent) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static Class<?> classNamed(String name) throws ClassNotFoundException {
        Class<?> found = CLASSES.get(name);
        if (found == null) {
            found = Class.forName(name);
            CLASSES.put(name, found);
        }
        return found;
    }
}
