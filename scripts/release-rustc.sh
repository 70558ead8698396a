#!/bin/sh
# RUSTC_WORKSPACE_WRAPPER of release builds: how the two programs are linked, and nothing else. So both come out of one build: in RUSTFLAGS
# each of these would compile every dependency a second time.
# platform is static (glibc with +crt-static), and its relocations are packed, which is 2 MB of 27; a dynamic program would need glibc 2.36 for that.
# The standard library refers to getrandom weakly, for which nothing is taken from a static library: without it, it reads /dev/random.
# Functions of the same machine code are one function (--icf): the compiler does so within a crate, the linker does over all of them.
rustc=$1
shift
case " $* " in
*" --crate-name platform "*" --crate-type bin "*)
  exec "$rustc" "$@" -C target-feature=+crt-static -C link-arg=-Wl,--icf=all,-z,pack-relative-relocs,--undefined=getrandom
  ;;
*" --crate-name platform_mixer "*" --crate-type bin "*) exec "$rustc" "$@" -C link-arg=-Wl,--icf=all ;;
esac
exec "$rustc" "$@"
