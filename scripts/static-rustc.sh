#!/bin/sh
# RUSTC_WORKSPACE_WRAPPER of release builds: links the program `platform` statically (glibc with +crt-static), and nothing else.
# So both programs come out of one build: a target feature in RUSTFLAGS would compile every dependency a second time.
rustc=$1
shift
case " $* " in
*" --crate-name platform "*" --crate-type bin "*) exec "$rustc" "$@" -C target-feature=+crt-static ;;
esac
exec "$rustc" "$@"
