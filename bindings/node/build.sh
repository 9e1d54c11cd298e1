#!/bin/sh
# sh build.sh DIR: compiles the classic-level in ./node_modules over LevelDB's interface of Terrace, which
# `cargo xtask leveldb-library DIR` has put into DIR. Beside it lies the package node-api-headers.
set -e

leveldb=$(cd "$1" && pwd)
level=node_modules/classic-level
out=$level/build/Release
sink=$level/deps/leveldb/leveldb-1.20/include/leveldb/value_sink.h
mkdir -p "$out"

# classic-level 3 has a function of its own in its LevelDB, which gives a value without a string between. Here it is the
# usual one and a copy.
theirs='return db_->Get(options, key, &value);'
ours='std::string b; auto s = db_->Get(options, key, \&b); if (s.ok()) value.assign(b.data(), b.size()); return s;'
if [ -e "$sink" ] && [ "$(grep -cF "$theirs" "$level/binding.cc")" != 1 ]; then
    echo "build.sh: not the classic-level that this was written for" >&2
    exit 1
fi
if [ -e "$sink" ]; then
    sed "s/$theirs/$ours/" "$level/binding.cc" > "$out/binding.cc"
    set -- -include string -include "$sink"
else
    cp "$level/binding.cc" "$out/binding.cc"
    set --
fi

# Node looks here before it takes the library that the package brings.
c++ -std=c++17 -O2 -fPIC -shared -DNODE_GYP_MODULE_NAME=classic_level -DBUILDING_NODE_EXTENSION "$@" \
    -I "$leveldb/include" -I node_modules/napi-macros -I node_modules/node-api-headers/include \
    "$out/binding.cc" -L "$leveldb/lib" -Wl,-rpath,"$leveldb/lib" -lleveldb -o "$out/classic_level.node"
