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
	"reflect"
	"strconv"
	"strings"
	"sync"

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

func topology(ctx context.Context, client *redis.ClusterClient) {
	slots := 0
	for _, one := range must(client.ClusterSlots(ctx).Result()) {
		slots += one.End - one.Start + 1
		check("nodes of slots", len(one.Nodes), 1)
	}
	check("slots", slots, 16384)
	check("shards", len(must(client.ClusterShards(ctx).Result())), 3)
	check("nodes", strings.Count(must(client.ClusterNodes(ctx).Result()), "connected"), 3)
	var lock sync.Mutex
	masters := map[string]bool{}
	err := client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		lock.Lock()
		defer lock.Unlock()
		masters[node.Options().Addr] = true
		return node.Ping(ctx).Err()
	})
	check("masters", []any{len(masters), err}, []any{3, nil})
}

func values(ctx context.Context, client *redis.ClusterClient) {
	must(client.FlushAll(ctx).Result())
	for n := 0; n < 300; n++ {
		must(client.Set(ctx, fmt.Sprintf("key:%d", n), n, 0).Result())
	}
	for n := 0; n < 300; n++ {
		check("get", must(client.Get(ctx, fmt.Sprintf("key:%d", n)).Result()), strconv.Itoa(n))
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
	check("scan", []any{count, err}, []any{300, nil})
	_, err = client.MSetNX(ctx, "a", 1, "b", 2).Result()
	check("several slots", err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT"), true)
	_, err = client.Get(ctx, "absent").Result()
	check("absent", errors.Is(err, redis.Nil), true)
}

func pipelines(ctx context.Context, client *redis.ClusterClient) {
	counts, err := client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for n := 0; n < 200; n++ {
			pipe.Incr(ctx, fmt.Sprintf("key:%d", n))
		}
		return nil
	})
	check("pipeline", []any{len(counts), err}, []any{200, nil})
	for n, one := range counts {
		check("count", one.(*redis.IntCmd).Val(), int64(n+1))
	}
	_, err = client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "{tag}a", 1, 0)
		pipe.Incr(ctx, "{tag}a")
		pipe.LPush(ctx, "{tag}b", "x")
		return nil
	})
	check("transaction", err, nil)
	check("written", must(client.Get(ctx, "{tag}a").Result()), "2")
	err = client.Watch(ctx, func(tx *redis.Tx) error {
		n := must(tx.Get(ctx, "{tag}a").Int())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "{tag}a", n+1, 0)
			return nil
		})
		return err
	}, "{tag}a")
	check("watch", []any{err, must(client.Get(ctx, "{tag}a").Result())}, []any{error(nil), "3"})
}

func moves(ctx context.Context, client *redis.ClusterClient) {
	must(client.Set(ctx, "moved", 0, 0).Result())
	count := int64(0)
	for turn := 0; turn < 5; turn++ {
		for _, to := range []string{"1", "2", "3", "HOME"} {
			count++
			check("before", must(client.Incr(ctx, "moved").Result()), count)
			must(client.Do(ctx, "CLUSTER", "MOVEKEY", "moved", to).Result())
			count++
			check("after", must(client.Incr(ctx, "moved").Result()), count)
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
		must(0, client.Close())
	}
	fmt.Println("all checks passed")
}
