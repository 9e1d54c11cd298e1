// go-redis against a server: replies in RESP3, its ClientInfo, pipelines, transactions and scans.
//
// Usage: go run . PORT
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
	"terrace/clients/expect"
)

func main() {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + os.Args[1], ClientName: "go"})
	defer client.Close()

	expect.Equal("ping", expect.Must(client.Ping(ctx).Result()), "PONG")
	expect.Equal("set", expect.Must(client.Set(ctx, "text", "value", 0).Result()), "OK")
	expect.Equal("get", expect.Must(client.Get(ctx, "text").Result()), "value")
	_, err := client.Get(ctx, "absent").Result()
	expect.Equal("absent", errors.Is(err, redis.Nil), true)
	expect.Must(client.HSet(ctx, "hash", "a", "1", "b", "2").Result())
	expect.Equal("hash", expect.Must(client.HGetAll(ctx, "hash").Result()), map[string]string{"a": "1", "b": "2"})
	expect.Must(client.ZAdd(ctx, "zset", redis.Z{Score: 1.5, Member: "x"}, redis.Z{Score: 0.1, Member: "y"}).Result())
	pairs := expect.Must(client.ZRangeWithScores(ctx, "zset", 0, -1).Result())
	expect.Equal("zset", pairs, []redis.Z{{Score: 0.1, Member: "y"}, {Score: 1.5, Member: "x"}})
	expect.Must(client.SAdd(ctx, "set", "x", "y").Result())
	expect.Equal("stored", expect.Must(client.SUnionStore(ctx, "to", "set").Result()), int64(2))
	expect.Must(client.RPush(ctx, "list", "a", "b").Result())
	expect.Equal("moved", expect.Must(client.LMove(ctx, "list", "list", "LEFT", "RIGHT").Result()), "a")
	expect.Equal("renamed", expect.Must(client.Rename(ctx, "list", "other").Result()), "OK")

	info := expect.Must(client.ClientInfo(ctx).Result())
	expect.Equal("name", info.Name, "go")
	expect.Equal("command", info.LastCmd, "client|info")
	expect.Equal("list", strings.Contains(expect.Must(client.ClientList(ctx).Result()), "name=go"), true)

	var count *redis.IntCmd
	_, err = client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Incr(ctx, "n")
		pipe.LPush(ctx, "text", "x")
		count = pipe.Incr(ctx, "n")
		return nil
	})
	expect.Equal("pipeline", err != nil && strings.HasPrefix(err.Error(), "WRONGTYPE "), true)
	expect.Equal("count", count.Val(), int64(2))

	change := func(between bool) error {
		return client.Watch(ctx, func(tx *redis.Tx) error {
			if between {
				expect.Must(client.Incr(ctx, "n").Result())
			}
			_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Incr(ctx, "n")
				return nil
			})
			return err
		}, "n")
	}
	expect.Equal("unchanged", change(false), nil)
	expect.Equal("changed", errors.Is(change(true), redis.TxFailedErr), true)
	expect.Equal("n", expect.Must(client.Get(ctx, "n").Result()), "4")

	for n := 0; n < 2000; n++ {
		expect.Must(client.Set(ctx, fmt.Sprintf("many:%d", n), n, 0).Result())
	}
	seen := map[string]bool{}
	iter := client.Scan(ctx, 0, "many:*", 100).Iterator()
	for iter.Next(ctx) {
		seen[iter.Val()] = true
	}
	expect.Equal("scan", len(seen), 2000)
	fmt.Println("all checks passed")
}
