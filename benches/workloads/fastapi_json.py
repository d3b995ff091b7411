"""FastAPI under uvicorn and httptools: a model validated and sent as JSON, keep-alive GETs.

One operation is one request.
"""

from fastapi import FastAPI
from pydantic import BaseModel
from support.asgi import serve_by_uvicorn
from support.serving import measure

app = FastAPI()


class Item(BaseModel):
    """The answer."""

    name: str
    price: float
    tags: list[str]


@app.get("/")
async def item() -> Item:
    """Make the answer."""
    return Item(name="coil", price=2.5, tags=["wire", "copper"])


async def serve() -> int:
    """Serve the application."""
    return await serve_by_uvicorn(app)


if __name__ == "__main__":
    measure(serve, load="http")
