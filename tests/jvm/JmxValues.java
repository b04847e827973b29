// Prints values of the MBeans of a running Java process: JmxValues PORT, with one pattern per line on
// standard input. The output is lines with name, attribute and value, and then an empty line.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

public class JmxValues {
    public static void main(String[] arguments) throws Exception {
        String url = "service:jmx:rmi:///jndi/rmi://127.0.0.1:" + arguments[0] + "/jmxrmi";
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(url))) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            for (String pattern = input.readLine(); pattern != null; pattern = input.readLine()) {
                for (ObjectName name : server.queryNames(new ObjectName(pattern), null)) {
                    for (MBeanAttributeInfo each : server.getMBeanInfo(name).getAttributes()) {
                        Object value = server.getAttribute(name, each.getName());
                        System.out.println(name + "\t" + each.getName() + "\t" + value);
                    }
                }
                System.out.println();
                System.out.flush();
            }
        }
    }
}
