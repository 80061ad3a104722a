// versitygw's own tests with buckets in the host name: `versitygw test --host-style full-flow --parallel`, for a domain
// that no name server knows.
//
// Arguments: the endpoint. Environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY.
package main

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"

	"github.com/versity/versitygw/tests/integration"
	"golang.org/x/net/dns/dnsmessage"
)

func main() {
	// Every name that is resolved is this machine.
	net.DefaultResolver = &net.Resolver{
		PreferGo: true,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go answer(server)
			return client, nil
		},
	}
	conf := integration.NewS3Conf(
		integration.WithAccess(os.Getenv("AWS_ACCESS_KEY_ID")),
		integration.WithSecret(os.Getenv("AWS_SECRET_ACCESS_KEY")),
		integration.WithRegion("us-east-1"),
		integration.WithEndpoint(os.Args[1]),
		integration.WithTLSStatus(true),
		integration.WithHostStyle(),
	)
	tests := integration.NewTestState(context.Background(), conf, true)
	integration.TestFullFlow(tests)
	tests.Wait()
	if integration.FailCount.Load() > 0 {
		os.Exit(1)
	}
}

// answer plays a name server on a stream: a message follows its length in two bytes.
func answer(stream net.Conn) {
	defer stream.Close()
	for {
		var size [2]byte
		if _, err := io.ReadFull(stream, size[:]); err != nil {
			return
		}
		packed := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(stream, packed); err != nil {
			return
		}
		var message dnsmessage.Message
		if err := message.Unpack(packed); err != nil {
			return
		}
		message.Response = true
		message.Additionals = nil
		for _, question := range message.Questions {
			if question.Type == dnsmessage.TypeA {
				message.Answers = append(message.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: question.Name, Class: question.Class},
					Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
				})
			}
		}
		packed, err := message.Pack()
		if err != nil {
			return
		}
		binary.BigEndian.PutUint16(size[:], uint16(len(packed)))
		if _, err := stream.Write(append(size[:], packed...)); err != nil {
			return
		}
	}
}
