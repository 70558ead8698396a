# Customers send 21 orders: 12 small ones (30 to 360), 4 of 2000 that are reviewed and approved, 2 of 6000 that are refused,
# one of 200000 that the reviewers think about, one without a price, and something that is no order.

# Sends a body, writes "status time body" to a file of its own.
order() {
  curl -sS --max-time 30 -D "$run/heads.$1" -w ' %{http_code} %{time_total}' -d "$2" "http://127.0.0.1:${port[7201]}/orders" > "$run/answer.$1"
}
status() { awk '{ print $(NF - 1) }' "$run/answer.$1"; }
answered() { local n code=$1 count=0; shift; for n in "$@"; do [ "$(status "$n")" != "$code" ] || count=$((count + 1)); done; echo $count; }
# The business signal of an order, as its answer names it.
flux_of() { sed -n 's/^flux-id: *\([0-9a-f-]*\).*/\1/ip' "$run/heads.$1"; }
booked() { grep -c accepted "$run/office/data/files/orders.ndjson" 2>/dev/null || true; }
archived() { count "select count(*) from messages where src_gear_id = 'accepted'"; }

say "Orders"
for n in $(seq 1 12); do order "$n" "{\"order\":$n,\"customer\":\"ada\",\"price\":$((n * 10)),\"count\":3}"; done
for n in $(seq 13 16); do order "$n" "{\"order\":$n,\"customer\":\"grace\",\"price\":500,\"count\":4}"; done
for n in 17 18; do order "$n" "{\"order\":$n,\"customer\":\"hugo\",\"price\":3000,\"count\":2}"; done
order 19 '{"order":19,"customer":"rich","price":200000,"count":1}' & long=$!
order 20 '{"order":20,"count":1}'
order 21 'no order at all' || true
wait "$long"
for n in 1 13 17 19 20 21; do cat "$run/answer.$n"; echo; done

await "the last order in the archive" enough archived 16
await "the last order in the ledger" enough booked 16

say "What came of it"
"$platform" scenario status
"$platform" spec list
"$platform" sql "select ts, number, customer, amount from messages_order where amount > 100 order by amount desc, number limit 5"
say "One order, from the customer to the answer"
"$platform" flux "$(flux_of 13)"
must "small orders, booked at once (200)" 12 "$(answered 200 $(seq 1 12))"
must "orders of 2000, reviewed and booked (200)" 4 "$(answered 200 $(seq 13 16))"
must "orders of 6000, refused (409)" 2 "$(answered 409 17 18)"
must "an order of 200000, in review (202)" 1 "$(answered 202 19)"
must "an order without a price (422)" 1 "$(answered 422 20)"
must "no order at all: nobody answers in time (504)" 1 "$(answered 504 21)"
must "orders over 100, by the column of their spec" 13 "$(count "select count(*) from messages_order where amount > 100")"
must "messages of the signal of order 13: accepted, booked" 2 "$("$platform" flux "$(flux_of 13)" --output ndjson | grep -c '"kind":"message"' || true)"
must "orders in the ledger" 16 "$(booked)"
must "orders in the archive" 16 "$(archived)"
