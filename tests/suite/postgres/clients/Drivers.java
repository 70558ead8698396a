// PostgreSQL's JDBC driver over a thousand log rows: one line for each operation and what came of it, as answers.py prints them.
//
// usage: java -cp postgresql.jar Drivers.java PORT USER MICROSECONDS

import java.io.StringWriter;
import java.sql.Array;
import java.sql.Connection;
import java.sql.DatabaseMetaData;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.sql.Types;
import java.time.Instant;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import org.postgresql.copy.CopyManager;
import org.postgresql.core.BaseConnection;
import org.postgresql.util.PGInterval;

public class Drivers {
    static final String ID = "018f6f1e-7f6a-7c3e-9d5b-000000000003";
    // More pairs than anybody counts in a test's time.
    static final String ENDLESS = "WITH few AS (SELECT message FROM logs LIMIT 50) SELECT count(*) FROM few a, few b, few c, few d, few e WHERE a.message || b.message || c.message < d.message || e.message";
    static String version;
    static Instant base;

    interface Work {
        Object done() throws Exception;
    }

    static void told(String operation, Work work) {
        Object value;
        try {
            value = work.done();
        } catch (SQLException error) {
            value = "error " + (error.getSQLState() == null ? error.getMessage() : error.getSQLState());
        } catch (Exception error) {
            value = "error " + error;
        }
        System.out.println(String.join("\t", "JDBC", version, operation, plain(value)));
    }

    /** A value as it is printed: times count microseconds from the first row. */
    static String plain(Object value) {
        if (value == null) {
            return "null";
        }
        if (value instanceof OffsetDateTime time) {
            return "+" + ChronoUnit.MICROS.between(base, time.toInstant()) + " us";
        }
        if (value instanceof List<?> list) {
            return "[" + String.join(", ", list.stream().map(Drivers::plain).toList()) + "]";
        }
        return value.toString().replace("\n", "\\n").replace("\t", "\\t");
    }

    /** Some columns of all rows, by their names. */
    static List<Object> rows(ResultSet answer, String... columns) throws SQLException {
        List<Object> rows = new ArrayList<>();
        while (answer.next()) {
            List<Object> row = new ArrayList<>();
            for (String column : columns) {
                row.add(answer.getObject(column));
            }
            rows.add(row);
        }
        return rows;
    }

    static int count(ResultSet answer) throws SQLException {
        int count = 0;
        while (answer.next()) {
            count++;
        }
        return count;
    }

    static Object one(PreparedStatement statement) throws SQLException {
        try (ResultSet answer = statement.executeQuery()) {
            answer.next();
            return answer.getObject(1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        String place = "jdbc:postgresql://127.0.0.1:" + arguments[0] + "/platform?user=" + arguments[1];
        base = Instant.EPOCH.plus(Long.parseLong(arguments[2]), ChronoUnit.MICROS);
        try (Connection connection = DriverManager.getConnection(place)) {
            version = connection.getMetaData().getDriverVersion();
            metadata(connection);
            statements(connection);
            transactions(connection);
        }
        try (Connection simple = DriverManager.getConnection(place + "&preferQueryMode=simple")) {
            PreparedStatement statement = simple.prepareStatement("SELECT count(*) FROM logs WHERE level = ? AND flux_id = ?");
            statement.setString(1, "error");
            statement.setObject(2, UUID.fromString(ID));
            told("simple query mode", () -> one(statement));
        }
    }

    static void metadata(Connection connection) throws SQLException {
        DatabaseMetaData meta = connection.getMetaData();
        told("getTables", () -> rows(meta.getTables(null, "public", "%", new String[] {"TABLE"}), "TABLE_SCHEM", "TABLE_NAME", "TABLE_TYPE"));
        told("getColumns", () -> rows(meta.getColumns(null, "public", "logs", null), "COLUMN_NAME", "DATA_TYPE", "TYPE_NAME", "NULLABLE", "ORDINAL_POSITION"));
        told("getColumns of all", () -> count(meta.getColumns(null, "public", "m%", "%")));
        told("getSchemas", () -> rows(meta.getSchemas(null, "public"), "TABLE_SCHEM"));
        told("getCatalogs", () -> rows(meta.getCatalogs(), "TABLE_CAT"));
        told("getPrimaryKeys", () -> count(meta.getPrimaryKeys(null, "public", "logs")));
        told("getIndexInfo", () -> count(meta.getIndexInfo(null, "public", "logs", false, true)));
        told("getImportedKeys", () -> count(meta.getImportedKeys(null, "public", "logs")));
        told("getExportedKeys", () -> count(meta.getExportedKeys(null, "public", "logs")));
        told("getCrossReference", () -> count(meta.getCrossReference(null, "public", "logs", null, "public", "traces")));
        told("getBestRowIdentifier", () -> count(meta.getBestRowIdentifier(null, "public", "logs", 0, true)));
        told("getVersionColumns", () -> rows(meta.getVersionColumns(null, "public", "logs"), "COLUMN_NAME"));
        told("getTypeInfo", () -> rows(meta.getTypeInfo(), "TYPE_NAME", "DATA_TYPE").stream().map(Drivers::plain)
            .filter(type -> Arrays.asList("[text, 12]", "[uuid, 1111]", "[timestamptz, 93]", "[int8, -5]").contains(type)).sorted().toList());
        told("getProcedures", () -> count(meta.getProcedures(null, "public", "%")));
        told("getProcedureColumns", () -> count(meta.getProcedureColumns(null, "public", "%", "%")));
        told("getFunctions", () -> count(meta.getFunctions(null, "public", "%")));
        told("getFunctionColumns", () -> count(meta.getFunctionColumns(null, "public", "%", "%")));
        told("getFunctionColumns of one", () -> count(meta.getFunctionColumns(null, "pg_catalog", "parse_ident", "%")));
        told("getUDTs", () -> count(meta.getUDTs(null, "public", "%", new int[] {Types.DISTINCT})));
        told("getMaxColumnsInIndex", meta::getMaxColumnsInIndex);
        told("getSQLKeywords", () -> meta.getSQLKeywords().length() > 100);
    }

    static void statements(Connection connection) throws SQLException {
        told("select", () -> {
            ResultSet answer = connection.createStatement().executeQuery("SELECT * FROM logs ORDER BY ts LIMIT 4");
            List<Object> rows = new ArrayList<>();
            while (answer.next()) {
                rows.add(Arrays.asList(answer.getObject("ts", OffsetDateTime.class), answer.getObject("flux_id"), answer.getString("level"), answer.getString("attributes")));
            }
            return rows;
        });
        told("types and headers", () -> {
            String text = "SELECT *, count(*), max(ts) - min(ts), upper(level), 1.5::float8, 2::int, true, ARRAY['a'] FROM logs GROUP BY 1, 2, 3, 4, 5, 6, 7 LIMIT 1";
            ResultSetMetaData columns = connection.createStatement().executeQuery(text).getMetaData();
            List<Object> named = new ArrayList<>();
            for (int column = 1; column <= columns.getColumnCount(); column++) {
                named.add(columns.getColumnLabel(column) + " " + columns.getColumnTypeName(column));
            }
            return named;
        });
        PreparedStatement prepared = connection.prepareStatement("SELECT count(*) FROM logs WHERE level = ? AND ts >= ? AND flux_id = ?");
        told("PreparedStatement", () -> {
            List<Object> counts = new ArrayList<>();
            // From the fifth time on a statement of the server, with answers in binary.
            for (int time = 0; time < 8; time++) {
                prepared.setString(1, time % 2 == 0 ? "info" : "error");
                prepared.setObject(2, base.atOffset(ZoneOffset.UTC));
                prepared.setObject(3, UUID.fromString(ID));
                counts.add(one(prepared));
            }
            return counts;
        });
        told("getParameterMetaData", () -> Arrays.asList(prepared.getParameterMetaData().getParameterTypeName(1),
            prepared.getParameterMetaData().getParameterTypeName(2), prepared.getParameterMetaData().getParameterTypeName(3)));
        told("setArray", () -> {
            PreparedStatement any = connection.prepareStatement("SELECT count(*) FROM logs WHERE level = ANY(?) OR length(message) = ANY(?)");
            any.setArray(1, connection.createArrayOf("text", new Object[] {"info", "debug"}));
            any.setArray(2, connection.createArrayOf("int4", new Object[] {5, 6}));
            return one(any);
        });
        told("getArray", () -> {
            Array levels = (Array) one(connection.prepareStatement("SELECT array_agg(level ORDER BY ts) FROM logs WHERE message LIKE 'row 1_'"));
            return Arrays.asList((Object[]) levels.getArray());
        });
        told("interval", () -> {
            PreparedStatement since = connection.prepareStatement("SELECT count(*) FROM logs WHERE ts > now() - ?");
            since.setObject(1, new PGInterval("1 day"));
            return one(since);
        });
        told("copyOut", () -> {
            StringWriter out = new StringWriter();
            CopyManager copies = new CopyManager((BaseConnection) connection);
            long rows = copies.copyOut("COPY (SELECT message, flux_id FROM logs ORDER BY ts LIMIT 4) TO STDOUT WITH (FORMAT csv, HEADER)", out);
            return rows + " " + out;
        });
        told("scrollable", () -> {
            Statement statement = connection.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_READ_ONLY);
            ResultSet answer = statement.executeQuery("SELECT message FROM logs ORDER BY ts");
            answer.last();
            return answer.getRow() + " " + answer.getString(1);
        });
        told("setQueryTimeout", () -> {
            Statement statement = connection.createStatement();
            statement.setQueryTimeout(1);
            return count(statement.executeQuery(ENDLESS));
        });
        told("cancel", () -> {
            Statement statement = connection.createStatement();
            Thread canceller = new Thread(() -> {
                while (!Thread.interrupted()) {
                    try {
                        Thread.sleep(50);
                        statement.cancel();
                    } catch (InterruptedException | SQLException over) {
                        return;
                    }
                }
            });
            canceller.start();
            try {
                return count(statement.executeQuery(ENDLESS));
            } finally {
                canceller.interrupt();
                canceller.join();
            }
        });
        told("isValid", () -> connection.isValid(10));
        told("setSchema", () -> {
            connection.setSchema("public");
            return connection.getSchema();
        });
        told("insert", () -> connection.createStatement().executeUpdate("INSERT INTO logs (level) VALUES ('x')"));
        told("error", () -> count(connection.createStatement().executeQuery("SELECT levl FROM logs")));
    }

    static void transactions(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        told("setFetchSize", () -> {
            Statement statement = connection.createStatement();
            statement.setFetchSize(7);
            int rows = count(statement.executeQuery("SELECT message FROM logs"));
            connection.commit();
            return rows;
        });
        told("setReadOnly, setTransactionIsolation", () -> {
            connection.setReadOnly(true);
            connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
            Object count = one(connection.prepareStatement("SELECT count(*) FROM logs"));
            connection.commit();
            return count;
        });
        told("savepoint", () -> {
            Savepoint savepoint = connection.setSavepoint("a");
            String failed = "none";
            try {
                connection.createStatement().executeQuery("SELECT levl FROM logs");
            } catch (SQLException error) {
                failed = error.getSQLState();
            }
            connection.rollback(savepoint);
            Object count = one(connection.prepareStatement("SELECT count(*) FROM logs"));
            connection.commit();
            return failed + " " + count;
        });
        connection.setAutoCommit(true);
    }
}
