"""The stock GraphQL client `gql`: a question over HTTP, a subscription over a WebSocket (graphql-transport-ws).

usage: gql_client.py HOST:PORT
Prints one JSON object. Nothing here knows of Weir but the names of its fields.
"""

import asyncio
import json
import sys

from gql import Client, gql
from gql.transport.aiohttp import AIOHTTPTransport
from gql.transport.exceptions import TransportQueryError
from gql.transport.websockets import WebsocketsTransport


async def ask(address):
    transport = AIOHTTPTransport(url=f"http://{address}/graphql")
    # The client reads the schema by introspection and holds its questions to it.
    async with Client(transport=transport, fetch_schema_from_transport=True) as session:
        found = await session.execute(gql("{ pools { name regime } }"))
        return found["pools"], len(session.client.schema.type_map)


async def refused(address):
    async with Client(transport=AIOHTTPTransport(url=f"http://{address}/graphql")) as session:
        try:
            await session.execute(gql("{ nothing }"))
        except TransportQueryError as error:
            return error.errors[0]["extensions"]["code"]


async def hear(address, count):
    transport = WebsocketsTransport(
        url=f"ws://{address}/graphql", subprotocols=[WebsocketsTransport.GRAPHQLWS_SUBPROTOCOL]
    )
    wanted = gql(
        'subscription { events(kinds: ["Dispatched"]) { __typename kind requestId ... on Dispatched { waitedMs } } }'
    )
    heard = []
    async with Client(transport=transport) as session:
        async for result in session.subscribe(wanted):
            heard.append(result["events"])
            if len(heard) == count:
                return heard


async def main(address):
    pools, types = await ask(address)
    said = {"pools": pools, "types": types, "code": await refused(address), "heard": await hear(address, 3)}
    print(json.dumps(said))


asyncio.run(asyncio.wait_for(main(sys.argv[1]), 60))
