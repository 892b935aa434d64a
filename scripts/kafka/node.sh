# One Apache Kafka node to try the relay with; sourced, never run.  Needs java and mvn.
#
#   install_kafka LIB        the jars that pom.xml names, into the directory LIB
#   start_kafka LIB DIR PORT a broker and controller in one process on 127.0.0.1, with its data in DIR;
#                            sets kafka_pid; its log is DIR/node.log

install_kafka() {
  local lib=$1 here work
  here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  # The pom lies beside the jars when all of them are there.
  cmp -s "$here/pom.xml" "$lib/pom.xml" && return 0
  rm -rf "$lib"
  mkdir -p "$lib"
  lib=$(cd "$lib" && pwd)
  work=$(mktemp -d)
  cp "$here/pom.xml" "$work/"
  mvn --quiet --batch-mode --file "$work/pom.xml" dependency:copy-dependencies \
    -DincludeScope=runtime -DoutputDirectory="$lib" || { rm -rf "$work"; return 1; }
  mv "$work/pom.xml" "$lib/"
  rm -rf "$work"
}

start_kafka() {
  local lib=$1 dir=$2 port=$3 java=${JAVA_HOME:+$JAVA_HOME/bin/}java waited=0
  mkdir -p "$dir"
  cat >"$dir/server.properties" <<PROPERTIES
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:$((port + 1))
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$dir/log
# There is one node, so its own topics have one copy; and the first member need not wait for others.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
PROPERTIES
  cat >"$dir/log4j2.properties" <<'PROPERTIES'
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m%n
PROPERTIES
  local run=("$java" -Xmx512m "-Dlog4j2.configurationFile=$dir/log4j2.properties" -cp "$lib/*")
  "${run[@]}" kafka.tools.StorageTool format --standalone --config "$dir/server.properties" \
    --cluster-id "$(head -c 16 /dev/urandom | base64 | tr '+/' 'xy' | tr -d '=')" >"$dir/node.log" 2>&1 || return 1
  setsid "${run[@]}" kafka.Kafka "$dir/server.properties" </dev/null >>"$dir/node.log" 2>&1 &
  kafka_pid=$!
  until timeout 2 kcat -L -q -b "127.0.0.1:$port" >/dev/null 2>&1; do
    kill -0 "$kafka_pid" 2>/dev/null || return 1
    ((waited++ < 300)) || return 1
    sleep 0.2
  done
}
