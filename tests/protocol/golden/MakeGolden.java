// What Kafka's own classes make of messages: used by make.py, which says how to run it.
//
// Reads lines "KEY q|p VERSION JSON" or "KEY q|p VERSION HEX" (- for no bytes), and answers each
// with the line of messages.txt, or with "! " and the reason why there is none.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

public class MakeGolden {
  private static final ObjectMapper mapper = new ObjectMapper();

  public static void main(String[] arguments) throws Exception {
    var in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      try {
        out.println(golden(line.split(" ", 4)));
      } catch (InvocationTargetException error) {
        out.println("! " + line + ": " + error.getCause());
      } catch (Exception error) {
        out.println("! " + line + ": " + error);
      }
    }
    out.flush();
  }

  private static String golden(String[] words) throws Exception {
    short key = Short.parseShort(words[0]);
    boolean request = words[1].equals("q");
    short version = Short.parseShort(words[2]);
    ApiMessageType api = ApiMessageType.fromApiKey(key);
    if (version < api.lowestSupportedVersion() || version > api.highestSupportedVersion(true)) {
      throw new Exception("this Kafka has only versions " + api.lowestSupportedVersion() + " to "
          + api.highestSupportedVersion(true));
    }
    ApiMessage message = request ? api.newRequest() : api.newResponse();
    Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
    if (words[3].startsWith("{")) {
      JsonNode node = mapper.readTree(words[3]);
      message = (ApiMessage) converter.getMethod("read", JsonNode.class, short.class)
          .invoke(null, node, version);
      JsonNode back = json(converter, message, version);
      if (!back.equals(mapper.readTree(mapper.writeValueAsString(node)))) {
        throw new Exception("Kafka's classes read it as " + mapper.writeValueAsString(back));
      }
    } else {
      ByteBuffer bytes = ByteBuffer.wrap(
          HexFormat.of().parseHex(words[3].equals("-") ? "" : words[3]));
      message.read(new ByteBufferAccessor(bytes), version);
      if (bytes.hasRemaining()) throw new Exception(bytes.remaining() + " bytes are left over");
    }
    ByteBuffer encoded = MessageUtil.toByteBuffer(message, version);
    byte[] bytes = new byte[encoded.remaining()];
    encoded.get(bytes);
    ApiMessage again = request ? api.newRequest() : api.newResponse();
    again.read(new ByteBufferAccessor(ByteBuffer.wrap(bytes)), version);
    String hex = bytes.length == 0 ? "-" : HexFormat.of().formatHex(bytes);
    return words[0] + " " + words[1] + " " + version + " " + hex + " = "
        + mapper.writeValueAsString(json(converter, again, version));
  }

  private static JsonNode json(Class<?> converter, Message message, short version)
      throws Exception {
    JsonNode node = (JsonNode) converter
        .getMethod("write", message.getClass(), short.class, boolean.class)
        .invoke(null, message, version, true);
    // A number has its smallest type, as one that was read.
    return mapper.readTree(mapper.writeValueAsString(node));
  }
}
