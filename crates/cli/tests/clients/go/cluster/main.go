// go-redis' cluster client against a cluster of three nodes: it finds the slots by itself, keys of all
// nodes, pipelines, transactions of one slot, scans of every master, and a key that is moved while it counts.
//
// Usage: go run ./cluster PORT
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
	"terrace/clients/expect"
)

func topology(ctx context.Context, client *redis.ClusterClient) {
	slots := 0
	for _, one := range expect.Must(client.ClusterSlots(ctx).Result()) {
		slots += one.End - one.Start + 1
		expect.Equal("nodes of slots", len(one.Nodes), 1)
	}
	expect.Equal("slots", slots, 16384)
	expect.Equal("shards", len(expect.Must(client.ClusterShards(ctx).Result())), 3)
	expect.Equal("nodes", strings.Count(expect.Must(client.ClusterNodes(ctx).Result()), "connected"), 3)
	var lock sync.Mutex
	masters := map[string]bool{}
	err := client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		lock.Lock()
		defer lock.Unlock()
		masters[node.Options().Addr] = true
		return node.Ping(ctx).Err()
	})
	expect.Equal("masters", []any{len(masters), err}, []any{3, nil})
}

func values(ctx context.Context, client *redis.ClusterClient) {
	expect.Must(client.FlushAll(ctx).Result())
	for n := 0; n < 300; n++ {
		expect.Must(client.Set(ctx, fmt.Sprintf("key:%d", n), n, 0).Result())
	}
	for n := 0; n < 300; n++ {
		expect.Equal("get", expect.Must(client.Get(ctx, fmt.Sprintf("key:%d", n)).Result()), strconv.Itoa(n))
	}
	var found sync.Map
	err := client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		scan := node.Scan(ctx, 0, "key:*", 100).Iterator()
		for scan.Next(ctx) {
			found.Store(scan.Val(), true)
		}
		return scan.Err()
	})
	count := 0
	found.Range(func(any, any) bool { count++; return true })
	expect.Equal("scan", []any{count, err}, []any{300, nil})
	_, err = client.MSetNX(ctx, "a", 1, "b", 2).Result()
	expect.Equal("several slots", err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT"), true)
	_, err = client.Get(ctx, "absent").Result()
	expect.Equal("absent", errors.Is(err, redis.Nil), true)
}

func pipelines(ctx context.Context, client *redis.ClusterClient) {
	counts, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n := 0; n < 200; n++ {
			pipe.Incr(ctx, fmt.Sprintf("key:%d", n))
		}
		return nil
	})
	expect.Equal("pipeline", []any{len(counts), err}, []any{200, nil})
	for n, one := range counts {
		expect.Equal("count", one.(*redis.IntCmd).Val(), int64(n+1))
	}
	_, err = client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "{tag}a", 1, 0)
		pipe.Incr(ctx, "{tag}a")
		pipe.LPush(ctx, "{tag}b", "x")
		return nil
	})
	expect.Equal("transaction", err, nil)
	expect.Equal("written", expect.Must(client.Get(ctx, "{tag}a").Result()), "2")
	err = client.Watch(ctx, func(tx *redis.Tx) error {
		n := expect.Must(tx.Get(ctx, "{tag}a").Int())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "{tag}a", n+1, 0)
			return nil
		})
		return err
	}, "{tag}a")
	expect.Equal("watch", []any{err, expect.Must(client.Get(ctx, "{tag}a").Result())}, []any{error(nil), "3"})
}

func moves(ctx context.Context, client *redis.ClusterClient) {
	expect.Must(client.Set(ctx, "moved", 0, 0).Result())
	count := int64(0)
	for turn := 0; turn < 5; turn++ {
		for _, to := range []string{"1", "2", "3", "HOME"} {
			count++
			expect.Equal("before", expect.Must(client.Incr(ctx, "moved").Result()), count)
			expect.Must(client.Do(ctx, "CLUSTER", "MOVEKEY", "moved", to).Result())
			count++
			expect.Equal("after", expect.Must(client.Incr(ctx, "moved").Result()), count)
		}
	}
}

func main() {
	ctx := context.Background()
	for _, protocol := range []int{2, 3} {
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: []string{"127.0.0.1:" + os.Args[1]}, Protocol: protocol,
		})
		topology(ctx, client)
		values(ctx, client)
		pipelines(ctx, client)
		moves(ctx, client)
		expect.Must(0, client.Close())
	}
	fmt.Println("all checks passed")
}
