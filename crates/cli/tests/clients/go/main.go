// go-redis against a server: replies in RESP3, its ClientInfo, pipelines, transactions and scans.
//
// Usage: go run . PORT
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"
)

func check(what string, found, wanted any) {
	if !reflect.DeepEqual(found, wanted) {
		fmt.Fprintf(os.Stderr, "%s: %#v, not %#v\n", what, found, wanted)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], ClientName: "go"})
	defer client.Close()

	check("ping", must(client.Ping(ctx).Result()), "PONG")
	check("set", must(client.Set(ctx, "text", "value", 0).Result()), "OK")
	check("get", must(client.Get(ctx, "text").Result()), "value")
	_, err := client.Get(ctx, "absent").Result()
	check("absent", errors.Is(err, redis.Nil), true)
	must(client.HSet(ctx, "hash", "a", "1", "b", "2").Result())
	check("hash", must(client.HGetAll(ctx, "hash").Result()), map[string]string{"a": "1", "b": "2"})
	must(client.ZAdd(ctx, "zset", redis.Z{Score: 1.5, Member: "x"}, redis.Z{Score: 0.1, Member: "y"}).Result())
	pairs := must(client.ZRangeWithScores(ctx, "zset", 0, -1).Result())
	check("zset", pairs, []redis.Z{{Score: 0.1, Member: "y"}, {Score: 1.5, Member: "x"}})
	must(client.SAdd(ctx, "set", "x", "y").Result())
	check("stored", must(client.SUnionStore(ctx, "to", "set").Result()), int64(2))
	must(client.RPush(ctx, "list", "a", "b").Result())
	check("moved", must(client.LMove(ctx, "list", "list", "LEFT", "RIGHT").Result()), "a")
	check("renamed", must(client.Rename(ctx, "list", "other").Result()), "OK")

	info := must(client.ClientInfo(ctx).Result())
	check("name", info.Name, "go")
	check("command", info.LastCmd, "client|info")
	check("list", strings.Contains(must(client.ClientList(ctx).Result()), "name=go"), true)

	var count *redis.IntCmd
	_, err = client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Incr(ctx, "n")
		pipe.LPush(ctx, "text", "x")
		count = pipe.Incr(ctx, "n")
		return nil
	})
	check("pipeline", err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE "), true)
	check("count", count.Val(), int64(2))

	change := func(between bool) error {
		return client.Watch(ctx, func(tx *redis.Tx) error {
			if between {
				must(client.Incr(ctx, "n").Result())
			}
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Incr(ctx, "n")
				return nil
			})
			return err
		}, "n")
	}
	check("unchanged", change(false), nil)
	check("changed", errors.Is(change(true), redis.TxFailedErr), true)
	check("n", must(client.Get(ctx, "n").Result()), "4")

	for n := 0; n < 2000; n++ {
		must(client.Set(ctx, fmt.Sprintf("many:%d", n), n, 0).Result())
	}
	seen := map[string]bool{}
	iter := client.Scan(ctx, 0, "many:*", 100).Iterator()
	for iter.Next(ctx) {
		seen[iter.Val()] = true
	}
	check("scan", len(seen), 2000)
	fmt.Println("all checks passed")
}
